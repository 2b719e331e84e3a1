//! What the writer writes, the reader reads; and what getters say about other types.

use pointsman_tensor::weights::gguf::ValueType;
use pointsman_tensor::weights::{Gguf, GgufWriter, TensorType, Value};

fn every_value() -> Vec<(&'static str, Value)> {
    vec![
        ("a.u8", u8::MAX.into()),
        ("a.i8", i8::MIN.into()),
        ("a.u16", u16::MAX.into()),
        ("a.i16", i16::MIN.into()),
        ("a.u32", u32::MAX.into()),
        ("a.i32", i32::MIN.into()),
        ("a.u64", u64::MAX.into()),
        ("a.i64", i64::MIN.into()),
        ("a.f32", (-1.5_f32).into()),
        ("a.f64", 0.1_f64.into()),
        ("a.bool", true.into()),
        ("a.string", "zwölf\n".into()),
        ("a.empty", "".into()),
        ("b.u8", [1_u8, 2].as_slice().into()),
        ("b.i8", [-1_i8, 2].as_slice().into()),
        ("b.u16", [1_u16, 2].as_slice().into()),
        ("b.i16", [-1_i16, 2].as_slice().into()),
        ("b.u32", [1_u32, 2].as_slice().into()),
        ("b.i32", [-1_i32, 2].as_slice().into()),
        ("b.u64", [1_u64, 2].as_slice().into()),
        ("b.i64", [-1_i64, 2].as_slice().into()),
        ("b.f32", [1.5_f32, 2.0].as_slice().into()),
        ("b.f64", [1.5_f64, 2.0].as_slice().into()),
        ("b.bool", [true, false].as_slice().into()),
        ("b.strings", ["a", "", "ß"].as_slice().into()),
        ("b.none", <[u32; 0]>::default().as_slice().into()),
        ("b.arrays", Value::Arrays(vec![[1_u8].as_slice().into(), ["x"].as_slice().into(), Value::Arrays(vec![])])),
    ]
}

fn written(values: &[(&str, Value)]) -> Gguf {
    let mut writer = GgufWriter::default();
    for (key, value) in values {
        writer.metadata(key, value.clone());
    }
    Gguf::parse(writer.finish()).unwrap()
}

#[test]
fn every_metadata_type_comes_back() {
    let values = every_value();
    let file = written(&values);
    assert_eq!(file.metadata().iter().len(), values.len());
    for (key, value) in &values {
        assert_eq!(file.metadata().value(key), Some(value), "{key}");
    }
}

#[test]
fn getters_convert_what_fits_and_refuse_the_rest() {
    let file = written(&every_value());
    let metadata = file.metadata();
    assert_eq!(metadata.u32("a.u8").unwrap(), 255);
    assert_eq!(metadata.f32("a.f64").unwrap(), 0.1);
    assert!(metadata.bool("a.bool").unwrap());
    assert_eq!(metadata.str("a.string").unwrap(), "zwölf\n");
    assert_eq!(metadata.strings("b.strings").unwrap(), ["a", "", "ß"]);
    assert_eq!(metadata.u32s("b.u64").unwrap(), [1, 2]);
    assert_eq!(metadata.i32s("b.i8").unwrap(), [-1, 2]);
    assert_eq!(metadata.f32s("b.f32").unwrap(), [1.5, 2.0]);
    assert_eq!(metadata.opt_u32("a.none").unwrap(), None);
    assert_eq!(metadata.opt_strings("a.none").unwrap(), None);

    let errors = [
        (metadata.u32("a.i8").map(drop), "metadata key \"a.i8\" holds i8 -128; expected a u32"),
        (metadata.u32("a.f32").map(drop), "holds f32 -1.5; expected a u32"),
        (metadata.opt_u32("a.u64").map(drop), "holds u64 18446744073709551615; expected a u32"),
        (metadata.f32("a.u8").map(drop), "holds u8 255; expected an f32"),
        (metadata.bool("a.u8").map(drop), "expected a bool"),
        (metadata.str("b.strings").map(drop), "holds array of 3 string; expected a string"),
        (metadata.strings("b.u8").map(drop), "holds array of 2 u8; expected an array of strings"),
        (metadata.u32s("b.i32").map(drop), "holds array of 2 i32; expected an array of u32"),
        (metadata.opt_i32s("b.f32").map(drop), "holds array of 2 f32; expected an array of i32"),
        (metadata.str("a.none").map(drop), "metadata key \"a.none\" is missing; expected a string"),
    ];
    for (result, phrase) in errors {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(phrase), "{error}");
    }
    assert_eq!(metadata.value("b.arrays").map(Value::kind), Some(ValueType::Array));
}

#[test]
fn every_tensor_type_comes_back() {
    let values: Vec<f32> = (0..1024).map(|i| (i % 17) as f32 / 4.0 - 2.0).collect();
    for alignment in [None, Some(8_u32), Some(4096)] {
        let mut writer = GgufWriter::default();
        if let Some(alignment) = alignment {
            writer.metadata("general.alignment", alignment);
        }
        for kind in TensorType::ALL {
            writer.tensor_f32(kind.name(), kind, 2, 512, &values).unwrap();
        }
        writer.tensor_f32("vector", TensorType::F32, 1, 3, &values[..3]).unwrap();
        let file = Gguf::parse(writer.finish()).unwrap();
        let names: Vec<&str> = file.tensor_names().collect();
        assert_eq!(names[..11], TensorType::ALL.map(TensorType::name), "the order of the file is kept");
        for kind in TensorType::ALL {
            let tensor = file.tensor(kind.name()).unwrap();
            assert_eq!((tensor.kind, tensor.rows, tensor.cols), (kind, 2, 512));
            let worst = values.iter().zip(tensor.to_f32()).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
            assert!(worst < 0.3, "{kind}: {worst}");
        }
        assert_eq!(file.tensor("vector").unwrap().to_f32(), [-2.0, -1.75, -1.5]);
        assert_eq!(file.tensors().len(), 12);
    }
}

#[test]
fn the_writer_refuses_what_could_not_be_read() {
    let mut writer = GgufWriter::default();
    writer.tensor_f32("a", TensorType::F32, 1, 2, &[1.0, 2.0]).unwrap();
    for (name, cols, count, phrase) in [
        ("a", 2, 2, "occurs twice"),
        ("b", 2, 3, "has 3 values, but [1, 2] needs 2"),
        ("b", 2, 0, "has 0 values"),
        ("b", 0, 0, "has no values"),
    ] {
        let error = writer.tensor_f32(name, TensorType::F32, 1, cols, &vec![0.0; count]).unwrap_err().to_string();
        assert!(error.contains(phrase), "{error}");
    }
}

#[test]
fn a_missing_tensor_is_reported_with_its_relatives() {
    let mut writer = GgufWriter::default();
    for name in ["blk.0.q", "blk.1.k", "blk.1.v", "out"] {
        writer.tensor_f32(name, TensorType::F32, 1, 1, &[0.0]).unwrap();
    }
    let file = Gguf::parse(writer.finish()).unwrap();
    assert!(file.has_tensor("out") && !file.has_tensor("ou"));
    for (name, phrase) in [
        ("blk.1.q", "tensor \"blk.1.q\" is missing; of blk.1.* the file has blk.1.k, blk.1.v"),
        ("blk.2.q", "of blk.* the file has blk.0.q, blk.1.k, blk.1.v"),
        ("in", "none of the file's 4 tensors"),
    ] {
        let error = file.tensor(name).unwrap_err().to_string();
        assert!(error.contains(phrase), "{error}");
    }
}

#[test]
fn files_are_mapped_and_errors_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.gguf");
    let mut writer = GgufWriter::default();
    writer.tensor_f32("w", TensorType::F16, 2, 2, &[1.0, 2.0, 3.0, 4.0]).unwrap();
    let bytes = writer.finish();
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensor("w").unwrap().to_f32(), [1.0, 2.0, 3.0, 4.0]);

    let short = folder.path().join("short.gguf");
    std::fs::write(&short, &bytes[..bytes.len() - 1]).unwrap();
    let empty = folder.path().join("empty.gguf");
    std::fs::write(&empty, "").unwrap();
    for (path, phrase) in [
        (short.as_path(), "short.gguf: tensor \"w\" needs 8 bytes"),
        (empty.as_path(), "empty.gguf: bad model file at byte 0: expected \"GGUF\", but this is an empty file"),
        (folder.path(), "not a regular file"),
        (&folder.path().join("none.gguf"), "none.gguf: "),
    ] {
        let error = Gguf::open(path).unwrap_err();
        let reason = std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        assert!(format!("{error}{reason}").contains(phrase), "{error}{reason}");
    }
}
