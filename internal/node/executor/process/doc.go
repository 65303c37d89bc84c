// Package process finds the processes of pods on this host. Linux only.
package process
