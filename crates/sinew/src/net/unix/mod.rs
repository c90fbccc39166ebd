//! Unix sockets.
