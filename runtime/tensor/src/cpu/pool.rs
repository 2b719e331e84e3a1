//! A fork-join thread pool: spin for a moment, then park.
//!
//! Owned by [`crate::cpu::Cpu`]; every kernel that is worth it runs as one *region*: a number of tasks, claimed one by one
//! from a counter by the calling thread and the workers. Life of a region:
//!
//! 1. The caller publishes the job and opens the gate with a new epoch; parked workers are woken.
//! 2. A worker that sees the new epoch enters through the gate, unless it has been closed already. Nobody waits for workers
//!    that have not entered, so one that the operating system keeps off its core costs nothing but its help.
//! 3. The caller works too. When no task is left it closes the gate and waits for those inside.
//! 4. A panic in a task ends the claiming and is resumed on the caller, after everyone has left.
//!
//! A region takes no lock and allocates nothing. Which thread runs a task must not change what it computes.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::error::TensorError;

/// Threads of one pool, the caller included.
pub const THREADS_MAX: usize = 256;

/// Looks at the gate before a worker starts to yield: tens of microseconds, longer than the serial stretches of a step.
const SPINS: u32 = 2000;
/// Yields before a worker parks. An idle server must not use a core.
const YIELDS: u32 = 50;

/// The gate is one word: `epoch << 32 | OPEN | STOP | workers inside`.
const OPEN: u64 = 1 << 31;
const STOP: u64 = 1 << 30;
const INSIDE: u64 = STOP - 1;

/// What a region runs: called with the thread's number and the task's number.
type Body<'a> = dyn Fn(usize, usize) + Sync + 'a;

#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    tasks: usize,
}

/// Keeps what different threads write on different cache lines (two, for the prefetcher fetches pairs).
#[repr(align(128))]
struct Apart<T>(T);

struct Shared {
    gate: Apart<AtomicU64>,
    next_task: Apart<AtomicUsize>,
    parked: Box<[Apart<AtomicBool>]>,
    job: UnsafeCell<Option<Job>>,
    panicked: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the only part that is not `Sync`. The caller writes it while the gate is closed and nobody is inside;
// workers read it only while they are inside. Entering acquires what opening the gate has released. The body that it points
// to is `Sync`, and outlives the region because `Pool::run` does not return, nor unwind, while anyone is inside.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed inside a region.
unsafe impl Send for Shared {}

/// The pool. Regions need `&mut`, so there is one at a time, and none inside another.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

impl Pool {
    /// A pool of `threads` threads, the caller of [`Pool::run`] being one of them.
    ///
    /// # Errors
    /// No threads, more than [`THREADS_MAX`], or none to be had from the system.
    pub(crate) fn new(threads: usize) -> Result<Self, TensorError> {
        if threads == 0 || threads > THREADS_MAX {
            return Err(TensorError::Unsupported(format!("{threads} CPU threads; choose 1 to {THREADS_MAX}")));
        }
        let shared = Arc::new(Shared {
            gate: Apart(AtomicU64::new(0)),
            next_task: Apart(AtomicUsize::new(0)),
            parked: (1..threads).map(|_| Apart(AtomicBool::new(false))).collect(),
            job: UnsafeCell::new(None),
            panicked: Mutex::new(None),
        });
        let mut pool = Self { shared, workers: Vec::with_capacity(threads - 1) };
        for worker in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let spawned = thread::Builder::new().name(format!("cpu-{worker}")).spawn(move || shared.serve(worker));
            let handle =
                spawned.map_err(|why| TensorError::Unsupported(format!("can not start CPU thread {worker}: {why}")))?;
            pool.workers.push(handle);
        }
        Ok(pool)
    }

    /// Threads, the caller included.
    pub(crate) fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(thread, task)` for every task in `0..tasks`, in any order, on any thread; `thread` is below
    /// [`Pool::threads`] and no two calls with the same number overlap. Returns when all have ended.
    ///
    /// # Panics
    /// With the first panic of a task; tasks not yet begun are then dropped.
    pub(crate) fn run(&mut self, tasks: usize, body: &Body<'_>) {
        if tasks <= 1 || self.workers.is_empty() {
            (0..tasks).for_each(|task| body(0, task));
            return;
        }
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes, and `close` ends every use of the job before this function ends: between here
        // and there nothing can unwind, for `work` catches what a task throws.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        let job = Job { body, tasks };
        // SAFETY: the gate is closed and nobody is inside, and `&mut self` keeps other callers out.
        unsafe { *shared.job.get() = Some(job) };
        shared.next_task.0.store(0, Ordering::Relaxed);
        let epoch = (shared.gate.0.load(Ordering::Relaxed) >> 32).wrapping_add(1);
        shared.gate.0.store(epoch << 32 | OPEN, Ordering::SeqCst);
        for (parked, worker) in shared.parked.iter().zip(&self.workers) {
            if parked.0.load(Ordering::SeqCst) && parked.0.swap(false, Ordering::SeqCst) {
                worker.thread().unpark();
            }
        }
        shared.work(job, 0);
        shared.close();
        let panicked = shared.panicked.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(cause) = panicked {
            panic::resume_unwind(cause);
        }
    }

    /// [`Pool::run`] with a piece of state for each thread; `states` has at least [`Pool::threads`] of them.
    pub(crate) fn run_with<S: Send>(&mut self, states: &mut [S], tasks: usize, body: impl Fn(&mut S, usize) + Sync) {
        assert!(states.len() >= self.threads(), "a state for each thread");
        let states = super::rows::Parts::new(states);
        self.run(tasks, &|thread, task| {
            // SAFETY: calls with the same thread number do not overlap, so each element is borrowed once at a time.
            let state = unsafe { states.slice(thread..thread + 1) };
            body(&mut state[0], task);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.gate.0.fetch_or(STOP, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // A worker catches what its tasks throw; there is nothing else that it could report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// A worker's life.
    fn serve(&self, worker: usize) {
        let mut seen = 0;
        while let Some(gate) = self.await_region(worker, seen) {
            seen = gate >> 32;
            let entered = self.gate.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, |now| {
                (now & OPEN != 0 && now >> 32 == seen).then_some(now + 1)
            });
            if entered.is_ok() {
                // SAFETY: inside, so the caller neither writes the job nor lets it die.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.work(job, worker);
                }
                self.gate.0.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// Waits for an epoch other than `seen`, and returns its gate; `None` when the pool stops.
    fn await_region(&self, worker: usize, seen: u64) -> Option<u64> {
        let parked = &self.parked[worker - 1].0;
        let mut looks = 0;
        loop {
            let gate = self.gate.0.load(Ordering::SeqCst);
            if gate & STOP != 0 {
                return None;
            }
            if gate >> 32 != seen {
                return Some(gate);
            }
            looks += 1;
            if looks < SPINS {
                hint::spin_loop();
            } else if looks < SPINS + YIELDS {
                thread::yield_now();
            } else if parked.swap(true, Ordering::SeqCst) {
                thread::park();
            }
            // With the flag just raised, the gate is looked at once more before parking: either this thread sees the new
            // epoch, or the caller sees the flag.
        }
    }

    /// Claims and runs tasks until none is left.
    fn work(&self, job: Job, thread: usize) {
        let run = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the caller of this region is still in `run`, which keeps the body alive.
            let body = unsafe { &*job.body };
            loop {
                let task = self.next_task.0.fetch_add(1, Ordering::Relaxed);
                if task >= job.tasks {
                    return;
                }
                body(thread, task);
            }
        }));
        if let Err(cause) = run {
            self.next_task.0.store(job.tasks, Ordering::Relaxed);
            self.panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cause);
        }
    }

    /// Lets nobody in any more, and waits for those inside: at most for the task that each is at.
    fn close(&self) {
        let mut gate = self.gate.0.fetch_and(!OPEN, Ordering::Acquire);
        let mut looks = 0;
        while gate & INSIDE != 0 {
            looks += 1;
            if looks < SPINS {
                hint::spin_loop()
            } else {
                thread::yield_now()
            }
            gate = self.gate.0.load(Ordering::Acquire);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_task_runs_once_whatever_the_number_of_threads() {
        for threads in [1, 2, 3, 5] {
            let mut pool = Pool::new(threads).unwrap();
            for tasks in [0, 1, 2, 3, 17, 100] {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                pool.run(tasks, &|thread, task| {
                    assert!(thread < threads);
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(
                    counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
                    "{threads} threads, {tasks} tasks"
                );
            }
        }
    }

    #[test]
    fn many_small_regions_in_a_row_lose_nothing() {
        let mut pool = Pool::new(3).unwrap();
        let total = AtomicUsize::new(0);
        for region in 0..20_000 {
            let before = total.load(Ordering::Relaxed);
            pool.run(4, &|_, task| {
                total.fetch_add(task + 1, Ordering::Relaxed);
            });
            assert_eq!(total.load(Ordering::Relaxed), before + 10, "region {region}");
        }
    }

    #[test]
    fn parked_workers_come_back() {
        let mut pool = Pool::new(2).unwrap();
        for _ in 0..5 {
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while !pool.shared.parked[0].0.load(Ordering::SeqCst) {
                assert!(std::time::Instant::now() < deadline, "an idle worker never parks");
                thread::sleep(Duration::from_millis(1));
            }
            let (first, second) = (AtomicBool::new(false), AtomicBool::new(false));
            // Two tasks that wait for each other end only if two threads run them.
            pool.run(2, &|_, task| {
                let (mine, other) = if task == 0 { (&first, &second) } else { (&second, &first) };
                mine.store(true, Ordering::SeqCst);
                while !other.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
            });
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut pool = Pool::new(3).unwrap();
        for bad in 0..40 {
            let thrown = panic::catch_unwind(AssertUnwindSafe(|| {
                pool.run(40, &|_, task| assert_ne!(task, bad, "task {bad}"));
            }));
            let cause = thrown.unwrap_err();
            assert!(cause.downcast_ref::<String>().unwrap().contains(&format!("task {bad}")));
            // All tasks may fail at once; one of the causes is kept, and none is left over for the next region.
            assert!(panic::catch_unwind(AssertUnwindSafe(|| pool.run(8, &|_, _| panic!("all")))).is_err());
            pool.run(8, &|_, _| ());
        }
    }

    #[test]
    fn each_thread_has_its_own_state() {
        let mut pool = Pool::new(3).unwrap();
        let mut seen: Vec<HashSet<usize>> = vec![HashSet::new(); 3];
        pool.run_with(&mut seen, 1000, |set, task| {
            set.insert(task);
        });
        assert_eq!(seen.iter().map(HashSet::len).sum::<usize>(), 1000);
    }

    #[test]
    fn refuses_absurd_thread_counts() {
        assert!(Pool::new(0).is_err());
        assert!(Pool::new(THREADS_MAX + 1).is_err());
    }
}
