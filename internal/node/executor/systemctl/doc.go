// Package systemctl reads the state of systemd units. Linux only.
package systemctl
