// Package run carries out node operations on the host it runs on. Linux only.
package run
