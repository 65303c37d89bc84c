// Package executor executes node operations on its host. Linux only.
package executor
