// Package program executes operations that run programs, as children or as transient
// units. Linux only.
package program
