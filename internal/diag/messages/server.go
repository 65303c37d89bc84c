package messages

import "slipway.dev/slipway/api/v1alpha1"

var managementServer = Section{
	Title: "The management server",
	Messages: []Message{
		{
			ID:      "server-keys-missing",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The data directory of a server has data, but not its keys.",
			Cause: "The service account key signs the tokens of all service accounts, and the encryption keys decrypt " +
				"the Secrets. The server makes them at its first start only. A file was removed, or a disk is not mounted.",
			Remedy: "Mount the disk, or restore the directory `keys` from a backup of this server. A key from another " +
				"server does not help.",
		},
		{
			ID:      "server-keys-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A key file of a server is damaged, or another program has changed it.",
			Cause: "The disk was full or has failed, or someone edited the file. The server accepts only the form that it " +
				"writes, and overwrites no key.",
			Remedy: "Restore the directory `keys` from a backup of this server. If only `sa.pub` is damaged, remove it: the " +
				"server makes it from `sa.key`.",
		},
		{
			ID:      "server-key-unknown",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A step of a rotation names an encryption key that the server does not have.",
			Cause:   "Another rotation has ended in the meantime, or the directory `keys` was restored.",
			Remedy:  "Start the rotation again: `slipwayd rotate-encryption-key`.",
		},
		{
			ID:      "server-file-unsafe",
			Code:    v1alpha1.ErrorInternal,
			Summary: "Users other than the server's may have read or changed one of its key files.",
			Cause: "The file is a link, belongs to another user, or has a mode that gives others access. Files with keys have " +
				"mode 0600.",
			Remedy: "Correct the owner and the mode as the hint shows. If others may have read the file, rotate its keys.",
		},
		{
			ID:      "server-ca-missing",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The data directory of a server has data or certificates, but not its CA.",
			Cause: "The server makes its CA at the first start only. With another CA, all kubeconfigs of users would be " +
				"invalid.",
			Remedy: "Restore `ca.crt` and `ca.key` in the directory `pki` from a backup of this server.",
		},
		{
			ID:      "server-ca-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The CA of a server cannot be used.",
			Cause:   "`ca.crt` or `ca.key` is damaged, or the two do not match. The server does not overwrite them.",
			Remedy:  "Restore both files in the directory `pki` from a backup of this server.",
		},
		{
			ID:      "server-certificate-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The serving or admin certificate of a server cannot be used.",
			Cause: "The certificate or its key is damaged, the two do not match, or another CA has signed the " +
				"certificate. The server does not overwrite them.",
			Remedy: "Move both files away. The server makes new ones when it starts.",
		},
		{
			ID:      "server-name-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A name for the serving certificate is neither a DNS name nor an IP address.",
			Remedy: "Correct the value of `--tls-san`. A DNS name has letters, digits, `-` and `.`, and can begin with " +
				"`*.`. An IPv6 address has no brackets and no zone.",
		},
		{
			ID:      "server-port-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another program uses the address of the API.",
			Remedy: "Find the program: `ss -ltnp`. Stop it, or select another address with `--listen`. If it is a server on " +
				"the same data directory, it is running already: `slipwayd status`.",
		},
		{
			ID:      "server-listen-failed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The server cannot listen on the address of `--listen`.",
			Cause:   "The address does not belong to this machine, or the port needs a right that the user does not have.",
			Remedy:  "Select an address of this machine and a port above 1023. `0.0.0.0` is all addresses.",
		},
		{
			ID:      "server-etcd-unreachable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The etcd of the server does not respond in time.",
			Cause:   "An address of `--etcd-servers` is wrong, etcd has no leader, or it rejects the client certificate.",
			Remedy: "Ask that etcd with the same files: `etcdctl --endpoints URL --cacert FILE --cert FILE --key FILE endpoint " +
				"health`. Then start the server again.",
		},
		{
			ID:      "server-etcd-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The external etcd has data of another API server with the same prefix.",
			Cause:   "It is probably the etcd of a Kubernetes cluster. Two API servers with one prefix would change each other's objects.",
			Remedy:  "Select another prefix with `--etcd-prefix`, or another etcd.",
		},
		{
			ID:      "server-etcd-of-another-server",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The data in etcd belongs to another management server.",
			Cause: "The data directory was made again, or two servers have the same prefix. The keys in the data directory " +
				"cannot decrypt the Secrets of the other server.",
			Remedy: "Use the data directory of that server, or a copy of it for another server on the same etcd. For a new " +
				"server, select another prefix with `--etcd-prefix`.",
		},
		{
			ID:      "server-database-damaged",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The server cannot open its database.",
			Cause:   "The disk has failed, or another program has changed files in the directory `etcd`.",
			Remedy: "Check the disk. Then restore a backup: `slipwayd restore FILE --replace`. The command keeps the old " +
				"directory.",
		},
		{
			ID:      "server-disk-full",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The disk of the data directory has no room for the database.",
			Remedy:  "Remove other files from that disk, or enlarge it. Then start the server again. Do not remove files in the data directory.",
		},
		{
			ID:      "server-authentication-config",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file of `--authentication-config` cannot be used.",
			Cause: "The file cannot be read, is not an `AuthenticationConfiguration` of `apiserver.config.k8s.io/v1`, or has a " +
				"value that the API server rejects. The field `anonymous` belongs to the server.",
			Remedy: "Correct the field that the message names. A running server keeps the previous issuers until the file is " +
				"correct.",
		},
		{
			ID:      "server-definition-refused",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A webhook or an admission policy refuses an object that the server applies at its start.",
			Cause: "A webhook configuration or an admission policy applies to the server's own definitions, roles or policies. " +
				"Either it denies the change, or its webhook does not respond. A refusal of an object that needs no change does " +
				"not stop the server.",
			Remedy: "Start the server. It logs this error after 20 seconds, and serves its API for 40 more seconds. In this time, " +
				"find the object: `kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations," +
				"validatingadmissionpolicies,mutatingadmissionpolicies`. Then correct it, or delete it: `kubectl delete KIND NAME`. " +
				"Use `--kubeconfig` with `pki/admin.kubeconfig` in the data directory. The start then continues.",
		},
		{
			ID:      "server-tls-san-required",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The server listens for other machines, but its certificate has no name for them.",
			Remedy: "Set `--tls-san` to each name and address by which clients connect. For clients on this machine only, " +
				"keep the default of `--listen`.",
		},
		{
			ID:      "server-flag-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A flag of `slipwayd` has an invalid value, or two flags do not fit together.",
			Remedy:  "Correct the flag. `slipwayd server --help` lists all flags.",
		},
		{
			ID:      "server-not-running",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The command needs a running server, and none uses this data directory.",
			Remedy: "Start the server: `systemctl start slipwayd`. If it has another data directory, set `--data-dir`. Run the " +
				"command on the same machine.",
		},
		{
			ID:      "server-admin-kubeconfig",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The kubeconfig of the administrator cannot be read.",
			Cause:   "Only the user of the server may read `pki/admin.kubeconfig`, or the file is damaged.",
			Remedy:  "Run the command with `sudo`. If the file is damaged, start the server again: it writes the file.",
		},
		{
			ID:      "server-request-refused",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The running server has refused the request of a command.",
			Cause:   "The message has the reason from the server.",
			Remedy:  "Solve the problem in the message, then run the command again. The log of the server has details.",
		},
		{
			ID:      "server-user-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A kubeconfig cannot be issued for this user, group or lifetime.",
			Cause: "Names that begin with `system:` have rights in every Kubernetes API. A certificate cannot be revoked, so its " +
				"lifetime is limited.",
			Remedy: "Select another name, and bind it to a role: `kubectl create clusterrolebinding`. For long lifetimes, use a " +
				"service account: its tokens can be revoked.",
		},
		{
			ID:      "server-certificate-not-signed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The server has not signed a client certificate in time.",
			Cause:   "The controllers are on hold after a restore, or the server is overloaded.",
			Remedy:  "Run `slipwayd status`. If the controllers are on hold, run `slipwayd release`. Then run the command again.",
		},
	},
}
