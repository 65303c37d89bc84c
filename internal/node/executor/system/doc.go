// Package system executes operations on settings of the operating system. Linux only.
package system
