//! Dates for chat templates (`strftime_now`), in UTC, with the C locale's names.

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const DAY_SECONDS: u64 = 86_400;
const LEAP_CYCLE_DAYS: u64 = 146_097;

/// Broken-down time.
struct Date {
    year: u64,
    /// 1 to 12.
    month: u64,
    /// 1 to 31.
    day: u64,
    /// 0 is Sunday.
    weekday: u64,
    /// Seconds since midnight.
    second: u64,
}

impl Date {
    /// The proleptic Gregorian date, counted from 1 March so that the leap day ends a year.
    fn from_unix(seconds: u64) -> Self {
        let days = seconds / DAY_SECONDS;
        let since_era = days + 719_468; // days from 0000-03-01 to 1970-01-01
        let (cycle, day_of_cycle) = (since_era / LEAP_CYCLE_DAYS, since_era % LEAP_CYCLE_DAYS);
        let year_of_cycle =
            (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
        let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            year: 400 * cycle + year_of_cycle + u64::from(month <= 2),
            month,
            day: day_of_year - (153 * shifted_month + 2) / 5 + 1,
            weekday: (days + 4) % 7,
            second: seconds % DAY_SECONDS,
        }
    }

    /// One directive's value and the width that it is padded to with zeros, or `None` if it is not known.
    fn field(&self, directive: char) -> Option<(String, usize)> {
        let month = MONTHS[(self.month - 1) as usize];
        let weekday = WEEKDAYS[self.weekday as usize];
        let hour = self.second / 3_600;
        Some(match directive {
            'Y' => (self.year.to_string(), 4),
            'y' => ((self.year % 100).to_string(), 2),
            'm' => (self.month.to_string(), 2),
            'B' => (month.to_owned(), 0),
            'b' => (month[..3].to_owned(), 0),
            'd' => (self.day.to_string(), 2),
            'A' => (weekday.to_owned(), 0),
            'a' => (weekday[..3].to_owned(), 0),
            'H' => (hour.to_string(), 2),
            'I' => (((hour + 11) % 12 + 1).to_string(), 2),
            'p' => ((if hour < 12 { "AM" } else { "PM" }).to_owned(), 0),
            'M' => ((self.second / 60 % 60).to_string(), 2),
            'S' => ((self.second % 60).to_string(), 2),
            '%' => ("%".to_owned(), 0),
            _ => return None,
        })
    }
}

/// Formats a Unix time in seconds. `%-d` leaves the padding out. An unknown directive is an error that names it.
pub(super) fn strftime(seconds: u64, format: &str) -> Result<String, String> {
    let date = Date::from_unix(seconds);
    let mut text = String::new();
    let mut rest = format.chars();
    while let Some(character) = rest.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        let mut directive = rest.next();
        let is_bare = directive == Some('-');
        if is_bare {
            directive = rest.next();
        }
        let Some((value, width)) = directive.and_then(|directive| date.field(directive)) else {
            return Err(format!("strftime_now does not know the directive {directive:?} in {format:?}"));
        };
        let width = if is_bare { 0 } else { width };
        text.push_str(&format!("{value:0>width$}"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::strftime;

    #[test]
    fn known_dates() {
        let format = |seconds| strftime(seconds, "%a %A %d %b %B %Y %y %m %-m %H:%M:%S %I %p %%").unwrap();
        assert_eq!(format(0), "Thu Thursday 01 Jan January 1970 70 01 1 00:00:00 12 AM %");
        assert_eq!(format(951_827_696), "Tue Tuesday 29 Feb February 2000 00 02 2 12:34:56 12 PM %");
        assert_eq!(format(1_735_689_599), "Tue Tuesday 31 Dec December 2024 24 12 12 23:59:59 11 PM %");
        assert_eq!(strftime(1_741_046_400, "%-d %B %Y").unwrap(), "4 March 2025");
    }

    #[test]
    fn unknown_directives_are_named() {
        assert!(strftime(0, "%Q").unwrap_err().contains("'Q'"));
        assert!(strftime(0, "ends with %").is_err());
    }
}
