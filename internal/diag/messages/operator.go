package messages

import "slipway.dev/slipway/api/v1alpha1"

var operator = Section{
	Title: "The operator",
	Messages: []Message{
		{
			ID:      "operator-flag-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A flag of `slipwayd operator` has an invalid value, or the program finds no cluster.",
			Remedy:  "Correct the flag. `slipwayd operator --help` lists all flags. Outside of a Pod, set `--kubeconfig`.",
		},
		{
			ID:      "operator-kubeconfig-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A command about the operator cannot use its kubeconfig, or a flag has an invalid value.",
			Remedy:  "Set `--kubeconfig` and `--context` to the cluster that runs the operator. `kubectl config get-contexts` lists them.",
		},
		{
			ID:      "operator-not-installed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The command needs an operator, and the cluster has none.",
			Cause:   "The operator was not installed, or the kubeconfig is of another cluster.",
			Remedy:  "Check the context, or run `slipway operator install`.",
		},
		{
			ID:      "operator-newer-installed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster has a later version of the operator than this program.",
			Cause: "An earlier version can remove fields of objects that it does not know. So the command line changes only " +
				"operators of its version and of earlier ones.",
			Remedy: "Use the version of `slipway` that the message names, or a later one.",
		},
		{
			ID:      "operator-clusters-exist",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The definitions of Slipway cannot be removed, because there are Clusters.",
			Cause:   "With its definition, each Cluster would be deleted. The policy `Delete` removes a cluster from its hosts.",
			Remedy: "Delete the Clusters first; the policy `Retain` does not change their hosts. Without `--with-data`, the operator " +
				"is removed, and the Clusters remain.",
		},
		{
			ID:      "operator-object-foreign",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster has an object with a name of the operator, which Slipway has not made.",
			Remedy:  "Check who needs the object, then delete or rename it.",
		},
		{
			ID:      "operator-not-ready",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The operator was installed, but its Pods are not ready in time.",
			Cause: "Often the nodes do not have the image of the operator and cannot pull it, or no node has room. The message " +
				"names the reason of each Pod.",
			Remedy: "Make the image available: `slipway bundle build --operator` for a cluster of Slipway, or `slipway operator image` " +
				"and a registry. Then run the command again.",
		},
		{
			ID:      "operator-in-management-server",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The API belongs to a management server, which runs no Pods and has separate controllers.",
			Remedy:  "Set `--kubeconfig` to a Kubernetes cluster. Clusters of the management server need no operator.",
		},
		{
			ID:      "operator-program-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file cannot be the program in the image of the operator.",
			Cause:   "The image has no libraries and runs on Linux. So it needs a static `slipwayd` for Linux, amd64 or arm64.",
			Remedy:  "Build it with `make server`, and name `bin/slipwayd`.",
		},
	},
}
