//! Copying from one to another, and both ways.
