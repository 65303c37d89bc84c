// Package facts reads the facts of this host. Linux only.
package facts
