// Package atomicfile changes files so that a crash at any time leaves either the old or the
// new state, and a reported change survives a power failure. Linux only.
package atomicfile
