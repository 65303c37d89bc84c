// Package systemd executes operations on systemd units. Linux only.
package systemd
