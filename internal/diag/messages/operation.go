package messages

import "slipway.dev/slipway/api/v1alpha1"

var operations = Section{
	Title: "Clusters and operations",
	Messages: []Message{
		{
			ID:      "cluster-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster exists already.",
			Cause:   "`create` was called for it.",
			Remedy: "Change it with `slipway apply -f FILE`. If its creation has not finished, run `slipway resume NAME`. " +
				"To start again, run `slipway delete cluster NAME` first.",
		},
		{
			ID:      "cluster-paused",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster is paused.",
			Cause:   "`spec.paused` is true in the cluster file. Nothing was changed.",
			Remedy:  "Remove `spec.paused` from the file, or set it to `false`, and run the command again.",
		},
		{
			ID:      "bundle-version",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle of the file has another Kubernetes version than the file.",
			Remedy: "Name another bundle, omit `spec.bundle`, or set `spec.kubernetes.version` to the version of the " +
				"bundle.",
		},
		{
			ID:      "check-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A step could not determine its changes on a host, so there is no plan.",
			Cause:   "The message has the step and the cause. Nothing was changed.",
			Remedy:  "Fix the cause and plan again. `--ignore-errors` continues with the other hosts.",
		},
		{
			ID:      "plan-without-password",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The plan does not have the passwords that it needs.",
			Cause: "Plans never contain passwords. A plan for `--out` needs them elsewhere when it is applied: in the " +
				"saved cluster, if it exists with the same passwords, or where `passwordFrom` points.",
			Remedy: "Use `passwordFrom` instead of `password`, or apply the file itself.",
		},
		{
			ID:      "unknown-operation",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Another version of Slipway began the unfinished operation.",
			Cause:   "The operation has a kind that this version does not know. No host was contacted.",
			Remedy:  "Resume it with that version.",
		},
		{
			ID:      "other-operation-needed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster needs an operation of another kind.",
			Cause: "The state of the cluster has changed since the operation was requested in the API. For example, the " +
				"creation of the cluster has finished, or it was deleted.",
			Remedy: "Request an operation of the kind in the message.",
		},
		{
			ID:      "not-requestable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Operations of this kind cannot be requested in an API.",
			Cause: "In an API, the Cluster object names its hosts, and Slipway adds and removes hosts to match it. Other " +
				"kinds only follow from operations.",
			Remedy: "Change the Cluster object. To continue an operation that has failed, raise its `spec.retry`.",
		},
		{
			ID:      "nothing-unfinished",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no unfinished operation.",
			Cause: "`resume` and `rollback` need one, but the latest operation succeeded. `init os` does not count as an " +
				"operation of the cluster.",
			Remedy: "List the operations: `slipway operations list`. Run `init os` again.\n\n" +
				"An earlier interrupted rotation of a CA or key continues with its own command, which the hint has. " +
				"Between two minors of an upgrade, the message has the current version, and the hint has the command to " +
				"continue, with the file of the upgrade. The next minor is planned and confirmed as usual.",
		},
		{
			ID:      "spec-changed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The file has changed since the unfinished operation began.",
			Cause: "`resume` continues with the old version: it refuses a changed file that is given with `-f`, and " +
				"without `-f` it warns about a change of the original file. If the file of an upgrade over several " +
				"minors names the last minor, this does not count as a change.",
			Remedy: "To use the new version instead of the unfinished operation, run `slipway apply -f FILE`. To continue " +
				"with the saved version, run `slipway resume NAME` without `-f`.",
		},
		{
			ID:      "no-way-back",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The operation cannot be rolled back.",
			Cause:   "Its type has no rollback (for example a delete), or no earlier description of the cluster is saved.",
			Remedy:  "Run `slipway resume NAME`.",
		},
		{
			ID:      "host-left-behind",
			Code:    v1alpha1.ErrorConflict,
			Summary: "An earlier attempt to create or change the cluster changed a host that the file no longer contains.",
			Cause:   "Its files would remain there; for a control plane this includes the keys of the cluster's CAs.",
			Remedy: "One of these applies:\n\n" +
				"- If the cluster is still being created: roll the attempt back with `slipway rollback NAME` (with " +
				"`--ignore-errors` if the host is lost) and create the cluster from the new file, or keep the host in " +
				"the file.\n" +
				"- In an existing cluster, the host's name now has another address. Remove the node with that name " +
				"(`slipway delete node HOST`, with `--forget` if it is permanently lost), then add the other host.\n" +
				"- As a warning: the address is the previous one of the host, and its place was not given away yet. The " +
				"machine continues as before. Afterwards, reset the machine that was to replace it: `slipway delete " +
				"node --host USER@ADDRESS`.",
		},
		{
			ID:      "ledger-lost",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The ledger of the host is missing, empty or damaged.",
			Cause: "The ledger (`/var/lib/slipway/ledger`) has the state from before Slipway changed the host. The message " +
				"names the file. Slipway no longer knows what to restore, so it changes nothing on that host, and the " +
				"cluster remains in Slipway's state.",
			Remedy: "If you have a backup of the directory, restore it and run `slipway resume NAME`. Otherwise reinstall " +
				"the host, or clean it manually:\n\n" +
				"- stop and disable kubelet and containerd\n" +
				"- remove their units and settings (Slipway's files contain \"Written by Slipway\")\n" +
				"- remove `/etc/kubernetes`, `/var/lib/kubelet`, `/var/lib/etcd` and `/var/lib/containerd`\n" +
				"- remove Slipway's block in `/etc/hosts` and, last, `/var/lib/slipway`\n\n" +
				"Then run `slipway delete cluster NAME --forget`.",
		},
		{
			ID:      "host-unmanaged",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A host must be reset, but it has no Slipway ledger.",
			Cause: "Slipway did not install the software that runs there, or the host was reinstalled since. Slipway " +
				"neither stops nor removes anything; the detail lists the findings.",
			Remedy: "If it is the wrong host, correct its address. If you do not need the software, remove it with the tool " +
				"that installed it. To remove the cluster from Slipway's state anyway, run `slipway delete cluster NAME " +
				"--forget`.",
		},
		{
			ID:      "no-lock-majority",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The lock of the cluster is not held on a majority of the control planes.",
			Cause: "The lock must be held on more than half of the control planes, but too few of them are reachable. " +
				"Control planes that are permanently lost and are removed with `--forget` do not count.",
			Remedy: "Make them reachable. If you are sure that no other manager works on the cluster, use `--break-lock`, " +
				"which works with the reachable ones.",
		},
		{
			ID:      "reboots-own-machine",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway runs on a host that is to be rebooted: the reboot would end the operation.",
			Remedy: "Run Slipway on another machine. You can also name only the other hosts, and reboot this host without " +
				"Slipway: drain its node, reboot, and uncordon the node.",
		},
		{
			ID:      "operation-unfinished",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The latest operation on the cluster failed or was stopped.",
			Cause: "`cluster-info` reports this, and an upgrade or a rotation of the cluster CA is refused until it is " +
				"finished.\n\n" +
				"A restore of etcd that has begun to move data cannot be rolled back, and no other change is possible " +
				"before it is finished.",
			Remedy: "Run `slipway resume NAME`, or roll it back with `slipway rollback NAME`.\n\n" +
				"If a host is permanently lost, remove it from the saved state with `slipway delete node NAME " +
				"--forget`, which does not need the API. Then start a new restore, because the first one was made for " +
				"that host too: `slipway etcd restore NAME --from FILE`. If the restored data contain the host's node, " +
				"delete it: `slipway kubectl NAME -- delete node NODE`.",
		},
		{
			ID:      "ambiguous-operation",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Several operation ids begin with the given characters.",
			Remedy:  "Give more characters, or the whole id: `slipway operations list`.",
		},
		{
			ID:      "nothing-running",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`cancel` found no running operation on the cluster.",
			Cause:   "It has ended or was killed.",
			Remedy:  "List the operations: `slipway operations list`.",
		},
		{
			ID:        "cancel-unreadable",
			IsWarning: true,
			Summary:   "Slipway cannot read the requests to cancel the operation that it runs.",
			Cause:     "The state directory cannot be read at this moment. Slipway continues to try.",
			Remedy:    "To stop the operation, press Ctrl-C in its terminal.",
		},
		{
			ID:        "dump-incomplete",
			IsWarning: true,
			Summary:   "The support bundle lacks data of a host or of the API.",
			Cause: "The host was not reachable, or it did not respond in time. The bundle has all other data, and its " +
				"file `missing.txt` has all names and reasons.",
			Remedy: "Make the host or the API reachable, and run `slipway dump` again. If that is not possible, send this " +
				"bundle.",
		},
	},
}

var health = Section{
	Title: "Health of a cluster",
	Messages: []Message{
		{
			ID:      "api-down",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "No API server responds, neither through a control plane nor from this machine.",
			Cause: "Reported by `cluster-info`. The shown nodes, versions and add-ons are from the saved state, and the " +
				"resources are from the hosts.",
			Remedy: "Run the command at the end of the output: the kubelet's log on the control planes shows why a static " +
				"pod does not start.",
		},
		{
			ID:      "node-not-ready",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A node is not ready or is cordoned, its kubelet does not run, or its host cannot be queried.",
			Cause:   "Reported by `cluster-info`. The message has the reason.",
			Remedy:  "Find the cause with `slipway exec HOST --sudo -- journalctl -u kubelet -n 50`.",
		},
		{
			ID:      "endpoint-not-answering",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The API responds, but not to this node at the control plane endpoint.",
			Cause: "Reported by `cluster-info`. The cause is on the node or in between: the name in /etc/hosts, a firewall " +
				"or the load balancer. Pods on the node keep running, but its kubelet cannot report.",
			Remedy: "Fix the connection.",
		},
		{
			ID:      "etcd-member",
			Code:    v1alpha1.ErrorInternal,
			Summary: "etcd has a problem.",
			Cause: "Reported by `cluster-info` and `etcd health`. One of these problems was found, or etcd reports an " +
				"alarm:\n\n" +
				"- an etcd member does not respond, has no leader, is far behind the others, or has nearly used its " +
				"quota\n" +
				"- a member belongs to no known host, or a host has no member\n" +
				"- the versions of members differ\n" +
				"- the number of members is even, which tolerates no more losses than one member less",
			Remedy: "`slipway etcd health` names the member and the next command.\n\n" +
				"- Database nearly full: run `slipway etcd defrag`, or raise `quota-backend-bytes` at `spec.etcd.extraArgs`.\n" +
				"- `alarm NOSPACE`: the database is full, and nothing can be written to the cluster until `slipway etcd " +
				"defrag` has compacted and defragmented it.\n" +
				"- `alarm CORRUPT`: the data of a member differ from the others; remove the member and add it again.\n" +
				"- Most members permanently lost: [rescue etcd](rescue.md), or, if no member has data, [restore a " +
				"backup](backup.md).",
		},
		{
			ID:      "add-on-not-ready",
			Code:    v1alpha1.ErrorInternal,
			Summary: "Too few pods of a component of the cluster are ready.",
			Cause: "Reported by `cluster-info`. The component is the DNS or the pod network, for example. Nodes that are " +
				"down are not the only reason.",
			Remedy: "`slipway kubectl NAME -- get pods -A` shows the pods, and their events show the reason. If the " +
				"component is missing, `slipway apply -f FILE` recreates flannel; recreate CoreDNS or kube-proxy with " +
				"kubeadm, as the hint shows.",
		},
	},
}
