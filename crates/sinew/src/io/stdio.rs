//! Standard input, output and error.
