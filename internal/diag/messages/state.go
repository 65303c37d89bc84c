package messages

import "slipway.dev/slipway/api/v1alpha1"

var savedState = Section{
	Title: "Saved state on this machine",
	Messages: []Message{
		{
			ID:      "record-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A file in the state directory cannot be read.",
			Cause: "The disk failed, or someone changed the file. Slipway does not guess its content. The state directory " +
				"is `SLIPWAY_HOME`.",
			Remedy: "Restore it from a backup, or move it away. The effect depends on the file:\n\n" +
				"- `status.json` or `nodes.json` of a cluster, or `journal.jsonl` of an operation: little is lost.\n" +
				"- `default`: `slipway use NAME` writes it again. Commands with a cluster name do not need it.\n" +
				"- `operation.json`: the other operations are listed, with a warning about this one. Without the file, " +
				"the operation is forgotten.\n" +
				"- `cluster.json`: while the file is damaged, `slipway get clusters` lists the cluster by its name only " +
				"and exits with code 2, and a pattern (`'*@all'`) skips it with a warning. Without the file, the " +
				"cluster is forgotten, but `slipway delete cluster -f FILE` still removes it from its hosts.\n" +
				"- `kubeconfig`, damaged or with fields that Slipway does not save: get a new one from a control plane " +
				"with `slipway kubeconfig NAME --live`.\n\n" +
				"The cluster itself also has the content of `cluster.json`, except for passwords, and the `kubeconfig` " +
				"next to it still works: `kubectl -n kube-system get configmap slipway-cluster -o " +
				"jsonpath='{.data.cluster\\.yaml}'`. Convert the output to JSON to replace the file.",
		},
		{
			ID:      "records-foreign",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A file or directory in the state directory is a symbolic or hard link, or belongs to another user.",
			Cause: "Under `sudo`, Slipway works there as root on behalf of the calling user, and does not use a file that " +
				"may belong to another user. The directories `clusters`, `operations` and `backups` may be links to " +
				"another disk, if the target directories belong to the same user.",
			Remedy: "Move it away.",
		},
		{
			ID:      "records-unwritable",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "Slipway cannot write to the state directory, and it does nothing that it cannot save.",
			Cause: "The disk of this machine is full, the user may not write there, or the path contains a file instead of " +
				"a directory. A running operation stops when the disk is full.",
			Remedy: "Free disk space, then run `slipway resume NAME`.",
		},
		{
			ID:      "private-dir-unavailable",
			Code:    v1alpha1.ErrorInternal,
			Summary: "No directory is safe and has room for files with secrets.",
			Cause: "Slipway makes a directory for such files in `/dev/shm` or `XDG_RUNTIME_DIR`, or else in `TMPDIR` or `/tmp`, " +
				"and removes it at the end. The message has the reason for each of them. It must belong to root or to the user " +
				"that runs the command, as must all directories and links in its path. Others must not have write permission " +
				"there, except with the sticky bit, as in `/tmp`.",
			Remedy: "Set `TMPDIR` to a directory that belongs to your user and has mode 0700, on a disk with free space. Or correct " +
				"the mode of the directory that the message names: `chmod 1777 /tmp`.",
		},
	},
}

var commandLine = Section{
	Title: "On the command line",
	Messages: []Message{
		{
			ID:      "usage",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The command line is not valid.",
			Cause: "It has an unknown command or flag, or a missing, empty or extra argument. Or a flag has an empty " +
				"value: `-f \"$FILE\"` with an unset `FILE` does not count as a missing `-f`. Or the command does not " +
				"support the output format: `-o` takes `text`, `json` or `yaml`, but `completion` and programs such as " +
				"kubectl have their own output.",
			Remedy: "See the valid arguments and flags with `slipway COMMAND --help`.",
		},
		{
			ID:      "file-unreadable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file of the command line cannot be read or written.",
			Cause: "Or it is larger than a cluster file or plan can be (64 MiB), or already exists and would be " +
				"overwritten.",
			Remedy: "Name another file. `--yes` overwrites a file, but never a device, a pipe or a directory.",
		},
		{
			ID:      "cache-foreign",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A path leads through a link to a directory of another user.",
			Cause: "As root, Slipway follows a symbolic link of a user only to a directory of the same user. Under `sudo`, " +
				"the cache of the calling user, or the path of a file to write, has a link to a directory of another " +
				"user. Nothing was written there.",
			Remedy: "Remove the link, or name the directory that it points to. `SLIPWAY_CACHE` names another cache.",
		},
		{
			ID:      "no-cluster",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The command needs a saved cluster, but there is none.",
			Cause:   "The state is saved below `SLIPWAY_HOME`: another user or another machine has a different state.",
			Remedy:  "Create one with `slipway create cluster`, or pass the cluster file to commands that accept `-f`.",
		},
		{
			ID:      "not-found",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster or operation is not in the saved state.",
			Remedy: "Correct the name. `slipway get clusters` and `slipway operations list` list what is saved below " +
				"`SLIPWAY_HOME`.",
		},
		{
			ID:      "which-cluster",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Several clusters are saved, and the command names none of them.",
			Remedy:  "Name one, or select the default cluster: `slipway use NAME`.",
		},
		{
			ID:      "name-mismatch",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file and a name were given, but the file describes another cluster.",
			Remedy:  "Omit the name, or give the right file.",
		},
		{
			ID:        "old-cgroups",
			IsWarning: true,
			Summary:   "This machine has cgroup v1, and you create a cluster on this machine without a cluster file.",
			Cause: "Slipway sets `failCgroupV1: false`, so that the kubelet accepts cgroup v1; in a cluster file you would " +
				"have to set it yourself. Kubernetes will remove the support for cgroup v1.",
			Remedy: "Boot with cgroup v2 when you can.",
		},
		{
			ID:      "no-terminal",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Confirmation is needed, but standard input is not a terminal.",
			Cause:   "The command asks for confirmation before it changes or deletes anything.",
			Remedy:  "In a script, use `--yes`.",
		},
		{
			ID:      "not-confirmed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The confirmation was not given.",
			Cause: "The answer to the confirmation was not yes or, if hosts or data are removed, not the name of the " +
				"cluster. Nothing was changed.",
			Remedy: "Run the command again.",
		},
		{
			ID:      "removal-not-allowed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The plan removes hosts or data, perhaps because the file has lost a line.",
			Cause:   "`delete cluster NAME --yes` and `rollback NAME --yes` also count, because they name the cluster.",
			Remedy:  "If you want the removal, use `--allow-removal`, or type the name of the cluster at the confirmation.",
		},
		{
			ID:      "locked",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another operation is running on the cluster.",
			Cause: "The message has its process and start time, by that machine's clock; the exit code is 5. One control " +
				"plane with the lock of another manager is enough, because that manager may not know the other control " +
				"planes. The lock of a dead manager expires within a minute; `--break-lock` does not wait for that. A " +
				"process with a copy of the state directory, for example in a CI container, is another manager and also " +
				"waits.",
			Remedy: "Watch the operation with `slipway operations watch`, or stop it cleanly with `slipway cancel`. If " +
				"another manager runs it, use these commands there.",
		},
		{
			ID:      "other-manager",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another manager manages the cluster.",
			Cause: "A management server manages the cluster, also between its operations; the message has its address. Its " +
				"control planes keep this in `/var/lib/slipway/manager.json`. Two managers would revert the changes of " +
				"each other.",
			Remedy: "Change the Cluster on that server, with kubectl. If the server no longer exists, use `--take-over`: " +
				"the hosts then refuse that server. A server takes a cluster with an Operation that has the parameter " +
				"`takeOver`.",
		},
		{
			ID:      "fence-unreadable",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The file that fences off earlier managers is damaged on a host.",
			Cause: "Each host stores the number of the latest lock of its cluster (in `/var/lib/slipway/fence`, and after " +
				"the cluster is deleted in `/run/slipway/fence` until the next boot). It rejects managers whose lock " +
				"was taken over. This file is damaged, so nothing is changed on the host.",
			Remedy: "If no other manager works on the cluster, run the command again with `--break-lock`: it replaces the " +
				"file.",
		},
		{
			ID:      "plan-stale",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A saved plan no longer matches what it would do now.",
			Cause:   "The hosts, the cluster file or the bundle have changed since. The message shows the difference.",
			Remedy:  "Make a new plan.",
		},
		{
			ID:      "plan-changed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A saved plan was edited, truncated or damaged.",
			Cause: "It cannot be read, its digest does not match its content, or it describes another cluster than the one " +
				"it is for.",
			Remedy: "Copy the plan again, or make a new plan, with a changed cluster file if necessary.",
		},
		{
			ID:      "no-operation",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster has no operation to show.",
			Remedy:  "List the operations of all clusters: `slipway operations list`.",
		},
		{
			ID:      "plugin-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A program `slipway-NAME` on `PATH` could not be started.",
			Remedy:  "List the plugins and their problems: `slipway plugin list`.",
		},
	},
}
