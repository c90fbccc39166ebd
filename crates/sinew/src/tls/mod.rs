//! TLS by rustls on our sockets.
