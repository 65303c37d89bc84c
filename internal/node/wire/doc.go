// Package wire is the protocol between the manager and the node helper: one connection
// (an SSH session, a pair of pipes), frames with a size limit, first a version handshake,
// then any number of flow-controlled streams in both directions. A call (check, apply, a
// lock call) is a stream with messages; content for the host and connections from the
// host are streams of bytes. A large transfer neither blocks other streams nor fills
// memory; a silent peer is detected within 30 seconds.
package wire
