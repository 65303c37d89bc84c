package messages

import "slipway.dev/slipway/api/v1alpha1"

var conversion = Section{
	Title: "Converting a KubeKey file",
	Intro: "These messages name the KubeKey file and a place in it. Conversion can also report ids of the cluster " +
		"file. Messages with such ids name the KubeKey field that the value comes from. [Coming from " +
		"KubeKey](../from-kubekey.md) lists the new place of each field.",
	Messages: []Message{
		{
			ID:      "lost-in-conversion",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A field or value has no equivalent.",
			Cause:   "The cluster would be different without it, and Slipway has no equivalent or does not support it.",
			Remedy: "Change the file, or convert without it: `slipway convert --allow-loss` then reports it in a warning " +
				"and in a comment.",
		},
		{
			ID:        "not-converted",
			IsWarning: true,
			Summary:   "The field is left out.",
			Cause:     "The cluster is the same without it.",
			Remedy:    "No action is needed.",
		},
		{
			ID:        "other-default",
			IsWarning: true,
			Summary:   "KubeKey's default cannot be expressed.",
			Cause: "The file does not set a value, and KubeKey and Slipway have different defaults. The message names the " +
				"value in use.",
			Remedy: "To use another value, write it to the file.",
		},
	},
}

var description = Section{
	Title: "Describing a running cluster",
	Messages: []Message{
		{
			ID:        "not-as-it-is",
			IsWarning: true,
			Summary:   "The cluster has a setting that the file cannot express, or that the cluster does not store.",
			Cause: "A warning with another id means that the file describes the cluster correctly, but Slipway could not " +
				"create it this way.",
			Remedy: "Complete the `TODO` in the file.",
		},
		{
			ID:      "kubeconfig-unusable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway cannot use the kubeconfig.",
			Cause: "It has no current context, runs a program to log in, names certificate files, names a proxy, or does " +
				"not verify the server (this includes an `http://` address).",
			Remedy: "Write a self-contained one with `kubectl config view --flatten --minify`. The administrator's " +
				"kubeconfig is `/etc/kubernetes/admin.conf` on a control plane.",
		},
		{
			ID:      "cluster-unreadable",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The cluster's API cannot be read with this kubeconfig.",
			Cause: "The API does not respond, or the user may not read what is needed: ConfigMaps in `kube-system`, nodes " +
				"and DaemonSets.",
			Remedy: "Use the administrator's kubeconfig, from a machine that reaches the API.",
		},
		{
			ID:      "not-kubeadm",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster was not made with kubeadm.",
			Cause:   "It lacks the configuration that kubeadm keeps in the cluster. Only kubeadm clusters can be described.",
			Remedy:  "Use a cluster that kubeadm created.",
		},
	},
}
