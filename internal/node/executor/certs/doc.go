// Package certs executes operations on certificates and keys. Linux only.
package certs
