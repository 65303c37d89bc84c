// Package durable changes files so that a crash at any instant leaves either
// the old state or the new one, and what it reports as done survives a power
// cut. Linux only.
package durable
