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
			Summary: "A command cannot use the kubeconfig of an API with Clusters, or a flag has an invalid value.",
			Remedy: "Set `--kubeconfig` and `--context` to the cluster that runs the operator, or for `slipway move` to the " +
				"management server. `kubectl config get-contexts` lists the contexts.",
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
		{
			ID:      "api-without-clusters",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The API has no Cluster objects.",
			Cause:   "The kubeconfig is of a cluster without the operator, or of another cluster.",
			Remedy:  "Set `--kubeconfig` and `--context`, or run `slipway operator install`.",
		},
		{
			ID:      "api-namespace-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The API does not have the namespace of the command.",
			Remedy:  "Select another one with `--namespace`, or create it.",
		},
		{
			ID:      "move-cluster-exists",
			Code:    v1alpha1.ErrorConflict,
			Summary: "`slipway move` finds a Cluster with this name in the namespace.",
			Cause:   "The cluster was moved already, another manager moves it, or the Cluster is of other hosts.",
			Remedy:  "If the Cluster is of other hosts, select another namespace.",
		},
		{
			ID:      "move-object-gone",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The control planes accept changes only from an API that has no object of the cluster.",
			Cause:   "An earlier `slipway move` was interrupted near its end, and its Cluster was deleted.",
			Remedy:  "Run `slipway apply --take-over`, then move the cluster again.",
		},
		{
			ID:      "move-cluster-not-running",
			Code:    v1alpha1.ErrorConflict,
			Summary: "`slipway move` moves only clusters that run.",
			Cause:   "The creation of the cluster, or its latest operation, has failed.",
			Remedy:  "Repair the cluster with `slipway resume` or `slipway apply`, and move it then.",
		},
		{
			ID:      "move-ssh-configuration",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The login of a host depends on the SSH configuration of the user.",
			Cause:   "A management server and an operator do not have this file.",
			Remedy:  "Write the settings that the message names into the cluster file, and apply the file. Then move the cluster.",
		},
		{
			ID:      "move-file-too-large",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file of the cluster is too large for a Secret.",
			Cause:   "The API limits a Secret to 1 MiB.",
			Remedy:  "Use a smaller file, or a URL, for example for manifests and charts.",
		},
	},
}
