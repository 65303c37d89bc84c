package messages

import "slipway.dev/slipway/api/v1alpha1"

var sandboxes = Section{
	Title: "Sandbox machines",
	Messages: []Message{
		{
			ID:      "sandbox-needs-linux",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Sandbox machines need Linux.",
			Cause:   "They use Linux namespaces.",
			Remedy:  "Use a Linux host or a virtual machine.",
		},
		{
			ID:      "sandbox-needs-root",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Only root can create namespaces, mounts and links.",
			Remedy:  "Run the command with `sudo`.",
		},
		{
			ID:      "sandbox-missing-program",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A program is missing on this host, or its installation failed.",
			Remedy:  "Install the Debian package that the hint names.",
		},
		{
			ID:      "sandbox-host-system",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host does not run Debian or Ubuntu.",
			Cause:   "The system of the machines is built from the packages of the host's own release.",
			Remedy:  "Use a host with Debian or Ubuntu.",
		},
		{
			ID:      "sandbox-no-loop",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The kernel has no loop devices, which the disks of the machines need.",
			Remedy:  "On a host, run `modprobe loop`. In a container, pass `/dev/loop-control` and `/dev/loop*` to it.",
		},
		{
			ID:      "sandbox-no-cgroups",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No cgroup tree is mounted; or, with cgroup v1, the tree named `systemd` is not mounted.",
			Cause:   "Hosts with systemd have it.",
			Remedy:  "Mount it with the command of the hint.",
		},
		{
			ID:      "sandbox-no-space",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The file system for the cache or the machines is too full.",
			Remedy:  "Move the cache with `SLIPWAY_CACHE`, and the machines with `--dir`.",
		},
		{
			ID:      "sandbox-no-internet",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`--internet` needs a default route and a resolver on this host.",
			Remedy:  "Configure both on this host, or omit the flag.",
		},
		{
			ID:      "sandbox-bad-name",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The name of the sandbox is not valid.",
			Cause: "The name of a sandbox has up to 40 lower-case letters, digits and hyphens, with a letter first and no " +
				"hyphen last. The host names of its machines begin with it.",
			Remedy: "Choose another name.",
		},
		{
			ID:      "sandbox-bad-number",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A number is outside its limits.",
			Cause: "A sandbox has 1 to 200 machines, at least one control plane, not more control planes than machines, " +
				"and disks of at least 2 GiB. Zero does not mean the default.",
			Remedy: "Choose a number within the limits.",
		},
		{
			ID:      "sandbox-bad-range",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value of `--range` is not valid.",
			Remedy:  "Write an IPv4 network from /8 to /24, such as `198.18.0.0/16`.",
		},
		{
			ID:      "sandbox-bad-file",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file given with `--from` cannot be read, has no hosts, or has invalid host names.",
			Remedy:  "Correct the file. Each host needs a unique, valid host name.",
		},
		{
			ID:      "sandbox-range-taken",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The address range has no free network for the sandbox.",
			Cause: "Every /24 of the range is in use on this host, or another sandbox took the range of this sandbox since " +
				"the host booted.",
			Remedy: "Delete a sandbox, or choose another range with `--range`.",
		},
		{
			ID:      "sandbox-name-taken",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A sandbox with that name exists, or something else is in its place.",
			Remedy:  "Choose another name, or delete the sandbox: `slipway sandbox delete NAME`.",
		},
		{
			ID:      "sandbox-foreign",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A directory of sandboxes does not belong to Slipway.",
			Cause: "A directory in the place of a sandbox, or of the base system in the cache, was not created by Slipway " +
				"as root. It belongs to another user, is reached through a symbolic link, or its `sandbox.json` is " +
				"missing or invalid. Slipway would work there as root, and `delete` would remove it, so Slipway does " +
				"not use it. `slipway sandbox list` shows it as `damaged`; other sandboxes work.",
			Remedy: "Move the directory or the link away.",
		},
		{
			ID:      "sandbox-unknown",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No sandbox has that name.",
			Cause:   "Other users, or another `SLIPWAY_HOME`, can have others.",
			Remedy:  "List the existing sandboxes: `slipway sandbox list`.",
		},
		{
			ID:      "machine-unknown",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No machine has that name, or machines in several sandboxes have it.",
			Remedy:  "Name an existing machine. If several sandboxes have it, write `SANDBOX/MACHINE`.",
		},
		{
			ID:      "machine-off",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The machine is not running.",
			Remedy:  "Start it: `slipway sandbox start MACHINE`.",
		},
		{
			ID:      "output-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster file to write already exists and is not overwritten.",
			Remedy:  "Name another file with `--out`, or remove it.",
		},
	},
}
