// Package run executes node operations on its host. Linux only.
package run
