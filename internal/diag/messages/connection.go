package messages

import "slipway.dev/slipway/api/v1alpha1"

var connection = Section{
	Title: "Hosts that cannot be used",
	Intro: "If Slipway cannot reach or change a host, the message has its name, the cause and a hint. The other " +
		"hosts are still checked. `--ignore-check` cannot skip these errors. If a key file on this machine " +
		"cannot be read, the id is [`ssh-key-unreadable`](#ssh-key-unreadable).",
	Messages: []Message{
		{
			ID:      "host-unreachable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The host, or the bastion in front of it, cannot be reached.",
			Cause:   "It is off, the address or port is wrong, a firewall drops the packets, or its name does not resolve.",
			Remedy: "Try `ssh -p PORT USER@ADDRESS` from this machine.\n\n" +
				"A change of a running cluster does not have to wait for another host. With `--ignore-errors` it " +
				"continues without that host, reports it in the result, and ends with exit code 3. `slipway resume` or " +
				"the next `apply` completes the change. An upgrade waits for every control plane, and its rollback for " +
				"every node ([upgrade.md](upgrade.md#when-it-stops)).",
		},
		{
			ID:      "ssh-config-unusable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`~/.ssh/config`, or a file that it includes, cannot be used.",
			Cause: "The message has the line. The files must belong to you or to root, and other users must not have write " +
				"access; the group of your home directory can have it. If the cluster file sets user, port, a " +
				"credential and `hostKey` of a host and of its bastion, the SSH configuration is not needed and the " +
				"error is ignored.",
			Remedy: "Correct the line, or the owner and mode of the file. Slipway does not evaluate `Match exec` and " +
				"similar criteria: if such a line can set a value, write that value in the cluster file. `ssh -G " +
				"ADDRESS` shows the settings that ssh uses.",
		},
		{
			ID:      "ssh-auth-failed",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The host rejected the login.",
			Cause: "The password or user is wrong, or none of the offered keys is in `authorized_keys`. The message lists " +
				"the attempts.",
			Remedy: "Correct the user, the password or the keys. A certificate next to a key (`KEY-cert.pub`) or in the " +
				"agent is offered as well: check its principals and validity with `ssh-keygen -L -f KEY-cert.pub`.",
		},
		{
			ID:      "host-key-unknown",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The host key is unknown and cannot be accepted.",
			Cause: "One of these is the reason:\n\n" +
				"- The file for known host keys cannot be written.\n" +
				"- A `known_hosts` file cannot be read. An unreadable file may revoke the key, so Slipway does " +
				"not treat the file as empty. Make it readable.\n" +
				"- A `@cert-authority` line names a CA for this host, but the host has no certificate from that CA that " +
				"is valid for its address. Sign the host key for that address.",
			Remedy: "Fix the reason that the message names. Or compare the key with the key on the console of the host, and " +
				"write it at `ssh.hostKey`.",
		},
		{
			ID:      "host-key-changed",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The host has a different key than before, or a key that a `@revoked` line names.",
			Cause: "Either the host was reinstalled, or someone intercepts the connection. A `@revoked` line applies in " +
				"every `known_hosts` file, also to a key in `ssh.hostKey`.",
			Remedy: "Ask the owner of the host. If the new key is right, remove the old one with `ssh-keygen -R ADDRESS`, " +
				"or correct `ssh.hostKey`.",
		},
		{
			ID:      "sudo-failed",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The login user is not root and cannot become root.",
			Cause:   "Sudo is missing, the user is not in sudoers, or the password is wrong.",
			Remedy:  "Set `sudoPasswordFrom`, or log in as root.",
		},
		{
			ID:      "wrong-architecture",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The architecture of the host is not amd64 or arm64, or differs from `arch` in the cluster file.",
			Cause:   "The node helper exists only for amd64 and arm64.",
			Remedy:  "Correct `arch` in the cluster file, or use another host.",
		},
		{
			ID:      "no-exec-directory",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No directory was found that belongs to root and allows programs to run.",
			Remedy:  "Mount `/run`, `/var/tmp`, `/tmp` or `/root` without `noexec`, or free space in one of them.",
		},
		{
			ID:      "helper-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The node helper was sent, but did not start or did not answer as expected.",
			Cause:   "The message has its output.",
			Remedy:  "Fix the cause that the output shows, and run the command again. `--debug` shows the full output.",
		},
		{
			ID:      "connection-lost",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The connection was lost and could not be opened again in time.",
			Cause:   "Steps that must not be interrupted continue on the host; `slipway resume` attaches to them.",
			Remedy:  "Make the host reachable, then run `slipway resume`.",
		},
		{
			ID:      "host-is-local",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host is this machine, which needs no SSH.",
			Remedy:  "Run the command directly.",
		},
	},
}

var hostSelection = Section{
	Title: "Naming hosts on the command line",
	Messages: []Message{
		{
			ID:      "unknown-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A selector matches no host of the cluster.",
			Remedy: "Select hosts by name, address, range (`node[2:10]`) or role (`role=worker`), separated by commas; " +
				"`all` selects every host.",
		},
		{
			ID:      "ambiguous-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An address in a selector belongs to several hosts.",
			Cause: "It is the `internalAddress` of one host and the `address` of another, or a gateway with several " +
				"machines behind it.",
			Remedy: "Use the host name.",
		},
		{
			ID:      "invalid-selector",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A selector cannot be parsed.",
			Cause:   "It has an empty item, an incomplete range, or a key other than `role`.",
			Remedy:  "Write it as [`unknown-host`](#unknown-host) describes.",
		},
		{
			ID:      "invalid-host-flag",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value of `--host` is not valid.",
			Cause: "The form of `--host` is `user@address:port=role,role,name=NAME`; user, port and name are optional. The " +
				"roles are `control-plane`, `worker`, `registry` and, for a cluster with `spec.etcd.type: managed`, " +
				"`etcd`. An IPv6 address with a port is in brackets.",
			Remedy: "Correct the value.",
		},
		{
			ID:      "no-such-clusters",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No cluster name matches the pattern.",
			Cause:   "The part before `@` in a selector is a pattern, such as `prod-*`.",
			Remedy:  "List the names with `slipway get clusters`, and correct the pattern.",
		},
		{
			ID:      "input-for-many",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Standard input can be passed to one host only.",
			Cause:   "`exec --stdin` was used, and the selector names several hosts.",
			Remedy:  "Choose one host, or copy a file to the hosts (`slipway cp`) and read it there.",
		},
		{
			ID:      "copy-unreadable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The local file cannot be copied.",
			Cause:   "It does not exist, cannot be read, or is neither a file, a directory nor a link. Nothing was sent.",
			Remedy:  "Name a readable file or directory.",
		},
		{
			ID:      "copy-skipped",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`slipway cp` left out a part of a directory.",
			Cause: "The part cannot be read, is neither a file, a directory nor a link, was removed before it was read, or " +
				"changed while it was copied. The message has the path and the reason. Everything else is copied, and " +
				"the exit code is 3.",
			Remedy: "Copy it again; use `--sudo` if the login user may not read it.",
		},
	},
}
