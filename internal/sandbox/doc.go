// Package sandbox makes machines on one Linux host, for trying and testing
// clusters: each has systemd as its init, sshd, an address, a cgroup subtree
// and a disk of limited size, and no hypervisor or container engine is
// needed. A machine is a set of namespaces; what is its own is undone by the
// kernel when they end, and what belongs to the host (a bridge, a rule, some
// limits) is recorded and restored.
//
// A machine keeps accidents in, not attackers: root inside is root.
package sandbox
