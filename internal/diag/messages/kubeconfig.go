package messages

import "slipway.dev/slipway/api/v1alpha1"

var kubeconfigs = Section{
	Title: "Your kubeconfig",
	Messages: []Message{
		{
			ID:      "kubeconfig-conflict",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Your kubeconfig has a context or cluster with the same name that leads to another cluster.",
			Cause: "The message has both addresses. Slipway does not overwrite the entry, because you would lose access to " +
				"the other cluster.",
			Remedy: "Rename the old entry (`kubectl config rename-context`), or write this kubeconfig to a separate file " +
				"(`slipway kubeconfig NAME --out FILE`).",
		},
		{
			ID:      "kubeconfig-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file of `KUBECONFIG`, or `~/.kube/config`, is not a kubeconfig.",
			Cause: "It has another kind, is not text, uses YAML aliases, or is a device, a pipe or a directory. Slipway " +
				"did not change it.",
			Remedy: "Fix the file, or choose another one.",
		},
		{
			ID:      "kubeconfig-locked",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Another program holds the lock of the kubeconfig.",
			Cause:   "The lock is the file `FILE.lock`. kubectl holds it for a moment while it writes.",
			Remedy:  "If no such program is running, it was killed: remove the lock file.",
		},
		{
			ID:      "kubeconfig-foreign",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The path of the kubeconfig leads through a link to a directory of another user.",
			Cause: "A symbolic link of a user leads to a directory of another user, such as `/etc/kubernetes`. Root does " +
				"not change a file through such a link.",
			Remedy: "Set `KUBECONFIG` to the target, or remove the link.",
		},
		{
			ID:      "no-kubectl",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway has no kubectl that works on this machine.",
			Cause: "`slipway kubectl` runs the kubectl of the cluster's bundle, but this machine has no such bundle, or " +
				"the bundle has no kubectl for it.\n\n" +
				"Root also refuses a kubectl that another user could replace, because that user could read your " +
				"credentials.",
			Remedy: "Use your own kubectl with the kubeconfig of the hint. As root, set `SLIPWAY_CACHE` to a directory that " +
				"belongs to you.",
		},
		{
			ID:      "no-kubeconfig",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "An admin kubeconfig is missing.",
			Cause: "It is saved when the control plane of the cluster is running. If the message names a host, its " +
				"`/etc/kubernetes/admin.conf` is missing or is not a readable file.",
			Remedy: "Run `slipway resume NAME`. If the message names a host, use the saved kubeconfig, without `--live`.",
		},
		{
			ID:      "kubeconfig-untrusted",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The administrator's kubeconfig on a control plane cannot be trusted.",
			Cause: "Root on a control plane can write anything into `/etc/kubernetes/admin.conf`, also a program that " +
				"`kubectl` would run on your machine. Slipway uses only the client certificate, its key and the CA from " +
				"that file. They must belong together, and the CA must be the recorded one, or be signed by it. " +
				"Anything else is refused: the message names the host, `--live` asks the next control plane, and " +
				"`slipway apply` and `slipway certs renew` stop before they save the file.",
			Remedy: "Find out who changed the file. To create it again, move it away on the host and run `slipway apply " +
				"NAME`. A CA that was rotated from another machine is refused too: compare `/etc/kubernetes/pki/ca.crt` " +
				"on all control planes, then move `$SLIPWAY_HOME/clusters/NAME/kubeconfig` away and run `slipway apply " +
				"NAME`, which records the new one.",
		},
	},
}
