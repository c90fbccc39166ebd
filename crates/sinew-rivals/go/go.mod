module sinew.rs/rivals

go 1.21
