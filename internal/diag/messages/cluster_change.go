package messages

import "slipway.dev/slipway/api/v1alpha1"

var clusterChange = Section{
	Title: "Changing an existing cluster",
	Messages: []Message{
		{
			ID:      "immutable-field",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "This value cannot change while the cluster exists.",
			Cause:   "It is in certificates, in running pods or in stored objects.",
			Remedy:  "Write the old value, or create a new cluster and move your workloads.",
		},
		{
			ID:      "endpoint-change",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Nodes cannot test this change of the control plane endpoint.",
			Cause: "The old endpoint would be removed before nodes have tested the new one. This applies to:\n\n" +
				"- a new address or router ID, in a mode where a control plane holds the address\n" +
				"- one such mode instead of another\n" +
				"- another address in mode `updater`\n" +
				"- mode `external` without an address on an existing cluster\n" +
				"- mode `external` with the address that the previous mode provides, and that goes away with it\n\n" +
				"A change back to the previous endpoint is always possible.\n\n" +
				"With mode `external` at the address of a control plane, that control plane cannot be removed: workers " +
				"have no other endpoint.",
			Remedy: "Write the old value. Or write `mode: haproxy`, apply it, and then apply the change that you want. With " +
				"`external`, write the address of the load balancer.\n\n" +
				"While a change is not complete, hosts can have both endpoints, and a change that does not work with " +
				"both is rejected. Apply the saved endpoint first, which completes the change.\n\n" +
				"If `external` has the address of a control plane that you want to remove, write another mode, or the " +
				"address of a load balancer, before or in the same apply.",
		},
		{
			ID:      "proxy-change",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`spec.kubernetes.proxyMode` changes from `iptables` to `ipvs` or back.",
			Cause: "At its start, kube-proxy removes the rules of the previous mode, but not between these two modes, " +
				"which share rules.",
			Remedy: "Write `nftables`, apply it, and then write the mode that you want. While a change to `nftables` is not " +
				"complete, nodes can have rules of the previous mode: complete the change first.",
		},
		{
			ID:      "roles-fixed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The roles of a host cannot change while it is in the cluster.",
			Remedy:  "Remove the host (`slipway delete node NAME`) and add it again with the new roles.",
		},
		{
			ID:      "address-fixed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A node is identified by its internal address, which cannot change while the node is in the cluster.",
			Remedy:  "Write the old address at `internalAddress`, or remove the host and add it again.",
		},
		{
			ID:      "runtime-change-alone",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The change of the container runtime must come alone.",
			Cause: "The file changes `spec.containerRuntime.type` and other settings. If a node does not work afterwards, " +
				"the cause would be unknown. Settings of the runtime (`containerRuntime`, `bundle`, `bundleKeys`) may " +
				"change together with it.",
			Remedy: "Apply the runtime change and the other changes separately, in either order.\n\n" +
				"While such a change is unfinished, other changes are refused too: run `slipway resume` or `slipway " +
				"rollback`. You can remove permanently lost hosts before that: `slipway delete node NAME --forget`. See " +
				"[runtimes.md](runtimes.md#from-one-to-the-other).",
		},
		{
			ID:      "host-known",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host is already in the cluster, with another name or other roles.",
			Cause:   "`--host` has its name or its address.",
			Remedy:  "Remove that host first, or name another host.",
		},
		{
			ID:      "host-renamed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file has a new name for a machine that is already a node under another name.",
			Remedy: "Remove the node by its old name first, then add the host. The same applies to a new machine with the " +
				"address of a leaving node: if that node is dead, run `slipway delete node OLD --forget` and then add " +
				"the new machine, or give the new machine the old name.",
		},
		{
			ID:      "host-returned",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host was force-removed from this cluster (`--forget`) and still has its files from that time.",
			Cause: "Until it is reset, the cluster rejects it by its machine id (ValidatingAdmissionPolicy " +
				"`slipway-forgotten-machines`).\n\n" +
				"The policy rejects machines that come back by accident. It does not stop attackers, because root on a " +
				"machine can change `/etc/machine-id`. A machine is not rejected if its node reported a machine id that " +
				"another node has too.",
			Remedy: "Reset it before it joins again: `slipway delete node --host USER@ADDRESS`.\n\n" +
				"If you no longer trust a machine, rotate the cluster CA (`slipway certs rotate-ca`) to invalidate its " +
				"credentials.",
		},
		{
			ID:      "host-leaves",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The removal of the host has begun and cannot be rolled back.",
			Cause: "The removal of a control plane or an etcd member failed or was interrupted after its API server was " +
				"stopped. Its etcd member is removed or about to be, and etcd does not accept a removed member with its " +
				"old data. So the host cannot be kept, neither with `rollback` nor with a file that names it.",
			Remedy: "Finish the removal (`slipway delete node HOST`, or `slipway resume NAME` if it is still the latest " +
				"operation), then add the host again. `--ignore-errors` continues with the other hosts and leaves this " +
				"one unchanged.",
		},
		{
			ID:      "host-on-record",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host is still in the saved cluster.",
			Cause:   "`delete node --host` is for hosts that are no longer in it.",
			Remedy:  "Remove it by its name.",
		},
		{
			ID:      "node-other-name",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The host to be removed is a node of the cluster under another name, so it would not be drained.",
			Remedy:  "Remove it by that name.",
		},
		{
			ID:      "node-runs",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A new machine is to take the name of another machine that is running.",
			Cause:   "A machine that no longer answers is replaced automatically.",
			Remedy:  "Remove that node first (`slipway delete node NAME`), or give the new host another name.",
		},
		{
			ID:      "host-runs",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A host to be force-removed is running.",
			Cause: "`--forget` is for hosts that are gone. This host cannot be reached (the message says why: a key, a " +
				"firewall, files on it), but the cluster receives reports from its kubelet, so it is running. If you " +
				"force-remove it, its pods are not drained. They continue to run unmanaged and are created a second " +
				"time elsewhere. After a machine has died, the cluster shows its node as ready for about 40 " +
				"seconds.\n\n" +
				"The same applies if another machine has the address of the host. That machine answers with another " +
				"machine id, and the machine of the node is running elsewhere. The check is made with the plan, so " +
				"nothing was changed. If such a host comes back later, the operation fails at that point.",
			Remedy: "Fix the connection to the host. If the host is to go for good, switch it off and wait until `kubectl " +
				"get nodes` shows it as not ready.\n\n" +
				"If another machine has the address, write the address of the right machine into the file and apply it. " +
				"`--force` removes the host anyway; `--ignore-errors` does not ignore this error.",
		},
		{
			ID:      "no-new-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file has no new host.",
			Cause:   "`add nodes -f FILE` adds the hosts of the file that are not in the cluster yet.",
			Remedy:  "Apply other changes with `slipway apply -f FILE`.",
		},
		{
			ID:      "not-created",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The creation of the cluster has not finished, so nodes cannot be added or removed.",
			Remedy:  "Run `slipway resume NAME`, or change the file and apply it.",
		},
		{
			ID:      "last-control-plane",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Without the given hosts, the cluster would have no control plane.",
			Remedy:  "Add another control plane first, or delete the cluster.",
		},
		{
			ID:      "control-plane-lost",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster exists, but none of the control planes that remain holds it.",
			Cause:   "One of them would initialize a new, empty cluster. No flag overrides this check.",
			Remedy: "To replace control planes, add the new ones before you remove the old ones (`slipway apply -f FILE` " +
				"with both in the file). If an address in the file now leads to another machine, correct the address, " +
				"or restore the machine that held the cluster.",
		},
		{
			ID:      "etcd-lost",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster exists with managed etcd, but none of the etcd hosts that remain has its data.",
			Cause:   "Etcd would start empty, and all objects of the cluster would be lost. No flag overrides this check.",
			Remedy: "To replace members, add the new ones before you remove the old ones (`slipway apply -f FILE` with both " +
				"in the file). If an address in the file now leads to another machine, correct the address, or restore " +
				"the machine with the data.",
		},
		{
			ID:        "control-plane-not-serving",
			IsWarning: true,
			Summary:   "A control plane host is reachable, but its API server does not respond (`/readyz`).",
			Cause: "The operation waits five minutes for it and then fails. Nothing is refused, because the operation may " +
				"be the repair.",
			Remedy: "Find the cause in the kubelet's log (why a static pod does not start) and in the pod's log below " +
				"`/var/log/pods` (why it ends).\n\n" +
				"If your settings are the cause, correct the file and apply it. If the control plane cannot be repaired " +
				"and others work, remove it (`slipway delete node NAME`, with `--forget` if its host is unreachable " +
				"too) and add it again. If no API server works, start the etcd members that are down first: more than " +
				"half of them must run. Continue a failed operation with `slipway resume NAME`.",
		},
		{
			ID:      "drain-blocked",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The node has pods that cannot be moved by waiting.",
			Cause: "Such a pod has no controller that recreates it, or its PodDisruptionBudget never allows an eviction " +
				"(`maxUnavailable: 0`, or `minAvailable` equal to the number of pods). If a pod without a controller is " +
				"created after the plan was made, the drain stops with this error and continues with `slipway resume " +
				"NAME`.",
			Remedy: "Move or delete these pods, or change the budget; `--force` deletes them.",
		},
		{
			ID:      "etcd-name-taken",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A host is to become an etcd member, but a member with its name is running on another machine.",
			Cause:   "A member that does not answer is removed automatically.",
			Remedy:  "Remove the other one first (`slipway delete node NAME`), or give the new host another name.",
		},
		{
			ID:      "etcd-quorum",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "Too few etcd members would remain.",
			Cause: "More than half of the etcd members must answer at any time, before and after a member is removed. The " +
				"message has the number of members that would remain, and the members that do not answer. Nothing was " +
				"removed.",
			Remedy: "Start those members, or remove them first, one at a time: `slipway delete node NAME --forget`. Then " +
				"remove the others.",
		},
		{
			ID:        "file-differs",
			IsWarning: true,
			Summary:   "After this operation, the cluster file differs from the saved cluster.",
			Cause:     "The next `apply -f` would change the cluster to match the file and undo the operation.",
			Remedy: "Add the hosts of the command line to the file, or remove them from it. `add nodes -f` adds only new " +
				"hosts of its file; see the other differences with `slipway plan -f FILE`.",
		},
		{
			ID:      "settings-reverted",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A node did not work with new settings, and the cluster was rolled back automatically.",
			Cause: "The failing node and the nodes that got the settings before it have their previous settings again. The " +
				"message has the component that did not work and, if known, the reason.",
			Remedy: "The cluster file still has the failed settings: correct them, then apply the file ([Settings of a cluster " +
				"that runs](settings.md)). To keep the failed state of a node for examination, apply with " +
				"`--no-revert`.",
		},
		{
			ID:      "revert-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "Settings did not work on a node, and the automatic rollback failed too.",
			Cause:   "Slipway does nothing more automatically.",
			Remedy:  "Find and fix the cause, then run `slipway rollback NAME`.",
		},
	},
}
