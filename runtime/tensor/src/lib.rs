//! Devices and bytes: weight formats, CPU kernels and the paged KV store.

pub mod backend;
pub mod cpu;
pub mod error;
pub mod kv;
pub mod weights;
