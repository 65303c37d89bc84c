package messages

import "slipway.dev/slipway/api/v1alpha1"

var addons = Section{
	Title: "Add-ons",
	Intro: "[addons.md](addons.md) describes add-ons. All of these problems except `addon-hook-failed` are found " +
		"before Slipway connects to a host.",
	Messages: []Message{
		{
			ID:      "addons",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The add-on does not work with this version of Kubernetes.",
			Cause: "An add-on lists the minor versions of Kubernetes that it works with. The version of the cluster, or " +
				"one on the path of an upgrade, is not among them.",
			Remedy: "Use a suitable version of the add-on, and write its versions under `kubernetes`. `--ignore-check " +
				"addons` ignores this error.",
		},
		{
			ID:      "addon-unusable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The content of an add-on cannot be read, or is not a manifest or a chart.",
			Cause: "The message has the file, and the document in it. A download that is not a chart, such as an error " +
				"page of a proxy, is not kept.",
			Remedy: "Correct the content. Slipway does not build kustomizations: run `kubectl kustomize DIR > FILE`.",
		},
		{
			ID:      "addon-download",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "A manifest or a chart cannot be downloaded.",
			Cause:   "The server does not answer, or the content does not exist.",
			Remedy:  "Check the address. Without a network, save the content to a file, and name the file.",
		},
		{
			ID:        "addon-offline",
			IsWarning: true,
			Summary:   "The source of a manifest does not answer.",
			Cause:     "The earlier download is used; its checksum is in the message.",
			Remedy:    "No action is needed.",
		},
		{
			ID:      "addon-checksum",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The download does not match the checksum in the file, or the checksum from the repository.",
			Remedy:  "Check the change before you write a new checksum.",
		},
		{
			ID:      "addon-render",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A chart cannot be rendered.",
			Cause: "The message has the template, the line and the error. Often a value is missing, or has another form " +
				"than the chart expects. This id is also used if the chart does not support the cluster's Kubernetes " +
				"version.",
			Remedy: "Correct the values of the chart.",
		},
		{
			ID:      "addon-random",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A chart renders differently each time.",
			Cause:   "It generates a password, a key or a name, or includes the current time.",
			Remedy:  "Set the value that the chart generates.",
		},
		{
			ID:        "addon-chart-hook",
			IsWarning: true,
			Summary:   "A chart has rollback hooks, which Slipway does not run.",
			Cause:     "The message lists them.",
			Remedy:    "No action is needed if the add-on works without these hooks.",
		},
		{
			ID:      "addon-hook-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A hook around the deletion of an add-on failed.",
			Cause: "Reported while the operation runs: the hook of a chart failed or did not finish within the `timeout` " +
				"of the add-on. Or its saved hooks cannot be read. The message has the add-on, the hook, the cause, and " +
				"whether the objects of the add-on still exist.",
			Remedy: "Fix the cause, then run `slipway resume NAME`. You can also delete the saved hooks: the add-on is then " +
				"removed without them ([how](addons.md#hooks-around-deletion)).",
		},
		{
			ID:      "addon-object-twice",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two add-ons, or two files of one add-on, have the same object.",
			Cause:   "Each would undo the changes of the other.",
			Remedy:  "Keep it in one place.",
		},
	},
}
