//! Our sockets, timers and fibers for async libraries.
