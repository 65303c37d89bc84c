//go:build linux

package main

// Steps of a host's preparation that would change this machine are redirected to a
// stand-in or left out. This applies to Slipway and to Ansible, because they prepare the
// same hosts.

// sharedParameters are kernel parameters that the kernel has once for all, with what
// a host finds there. Their files in /proc/sys are covered by ordinary files.
func sharedParameters() map[string]string {
	return map[string]string{
		"fs/inotify/max_user_instances": "128",
		"fs/inotify/max_user_watches":   "8192",
		"kernel/panic":                  "0",
		"kernel/panic_on_oops":          "0",
		"vm/max_map_count":              "65530",
		"vm/overcommit_memory":          "0",
		"vm/panic_on_oom":               "0",
	}
}

// standIns are programs of hosts, by path, that have a stand-in which knows
// what preparing hosts asks for and refuses all else.
func standIns() map[string]string {
	const refuse = "#!/bin/sh\necho \"$0: there is no stand-in for: $*\" >&2\nexit 1\n"
	return map[string]string{
		"usr/bin/systemctl": `#!/bin/sh
case $1 in
--version) echo "systemd 252 (stand-in)" ;;
show) printf 'LoadState=not-found\nActiveState=inactive\nSubState=dead\n' ;;
list-units | daemon-reload | --no-ask-password) ;;
*) echo "systemctl: there is no stand-in for: $*" >&2; exit 1 ;;
esac
`,
		"usr/sbin/modprobe": refuse,
		"usr/sbin/swapoff":  refuse,
	}
}

// A difference describes how a host differs from a separate machine.
type difference struct{ What, How string }

// listDifferences returns the differences. They are printed with the figures, and are
// documented in docs/benchmarks.md.
func listDifferences() []difference {
	return []difference{
		{"files", "real, in a separate overlay for each host, in memory: nothing waits for a disk"},
		{"host name", "real, in a separate UTS namespace for each host"},
		{"kernel parameters net.*", "real, in a separate network namespace for each host"},
		{"kernel parameters vm.*, kernel.panic*, fs.inotify.*", "redirected: a regular file is mounted over each file in /proc/sys, " +
			"because these parameters have no namespace"},
		{"all other kernel parameters", "read-only"},
		{"kernel modules", "the file for the boot is written, but no module is loaded: " +
			"overlay and br_netfilter must already be in the kernel, which Slipway checks and Ansible does not"},
		{"swap", "the line in /etc/fstab is removed; an empty list covers /proc/swaps, and swapoff does not run"},
		{"systemctl", "redirected to a replacement without units: " +
			"no systemd is running in the hosts (process 1 only has its name)"},
		{"time", "omitted: no time servers are configured, and no process in the benchmark can set the clock"},
		{"network", "SSH over the loopback link: no latency, and one sshd (from Debian) for all hosts, with one host key"},
		{"processor", "hosts and manager share the CPU of this machine: " +
			"the wall time is mostly the work of the hosts, which real hosts do in parallel"},
	}
}
