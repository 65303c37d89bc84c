package messages

import "slipway.dev/slipway/api/v1alpha1"

var clusterObjects = Section{
	Title: "Cluster objects in an API",
	Intro: "A `Cluster` object cannot use files, variables and keys of the machine on which a server runs. " +
		"[Files and logins of an object](../spec/v1alpha1/cluster.md#files-and-logins-of-an-object) lists the fields.",
	Messages: []Message{
		{
			ID:      "object-absolute-path",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A field names a file on the machine of the server.",
			Cause: "The name is an absolute path, or begins with `~`. On the command line it is a file of the user, but in an " +
				"object it would be a file of the server.",
			Remedy: "Store the file in a Secret or ConfigMap, name this source in `spec.filesFrom`, and write the key of the file.",
		},
		{
			ID:      "object-file-directory",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The name of a file contains a directory.",
			Cause: "The name of a file in an object is a key of a Secret or ConfigMap, and a key cannot contain `/`. So an object " +
				"has no directories, and `./a.yaml` and `a.yaml` cannot both exist.",
			Remedy: "Write only the key. `--from-file=a.conf=files/a.conf` of `kubectl create secret generic` and `kubectl create " +
				"configmap` stores a file of a directory under a key. For a directory of manifests, list each file. Store a " +
				"chart as an archive: `helm package DIRECTORY`.",
		},
		{
			ID:      "object-file-name",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The name of a file cannot be a key of a Secret or ConfigMap.",
			Cause: "A key has at most 253 characters: letters, digits, `-`, `_` and `.`. It cannot begin with `..`. Or the field " +
				"has the content of a file instead of its name.",
			Remedy: "Store the file under a valid key, and write this key.",
		},
		{
			ID:      "object-file-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No source of the object has a file with this name.",
			Cause:   "The key is misspelt, or `spec.filesFrom` does not name the Secret or ConfigMap with the file.",
			Remedy:  "Add the file to one of the sources that the message names, or name another source in `spec.filesFrom`.",
		},
		{
			ID:      "object-file-unreadable",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file or variable of a cluster cannot become a file of an object.",
			Cause:   "It does not exist, cannot be read, is a directory, or is too large.",
			Remedy:  "Correct the field in the cluster file and apply the file. Then move the cluster again.",
		},
		{
			ID:      "object-file-key",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A Secret or ConfigMap of an object has a key that is not a file name.",
			Cause:   "An API server does not accept such a key, so another program has written it.",
			Remedy:  "Rename the key.",
		},
		{
			ID:      "object-files-too-large",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The files of an object are too many or too large.",
			Cause: "An object can have 64 sources, and 1,024 files in all of them. Each file can have 4 MiB, and all files together " +
				"16 MiB. All keys of the sources count, also unused ones. Kubernetes limits each Secret and ConfigMap to 1 MiB.",
			Remedy: "Store the files of the cluster in separate sources, and name only these in `spec.filesFrom`. Publish large " +
				"manifests and charts at a URL or in a registry.",
		},
		{
			ID:      "object-source-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A Secret or ConfigMap of `spec.filesFrom` does not exist.",
			Cause:   "Its name is misspelt, or it is in another namespace than the cluster.",
			Remedy:  "Create the Secret or ConfigMap in the namespace of the cluster, or correct the name.",
		},
		{
			ID:      "host-in-other-cluster",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A host of an object is in another Cluster object already.",
			Cause: "Two hosts are the same if they have the same address, SSH port and bastion. The Cluster that has the host keeps it; " +
				"if none has it yet, the older object does. No operation of the other Cluster uses a host.",
			Remedy: "Remove the host from one of the two Clusters. If the other Cluster is being deleted, wait until it is gone.",
		},
		{
			ID:      "object-source-reserved",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`spec.filesFrom` names a Secret in which Slipway keeps credentials of clusters.",
			Cause: "Names that begin with `slipway.` or `slipway-plan.` belong to Slipway. A hook of the cluster could send their " +
				"content elsewhere.",
			Remedy: "Copy the files that the cluster needs into another Secret, and name that one.",
		},
		{
			ID:      "object-environment",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A field uses an environment variable, but the variables belong to the server.",
			Remedy:  "Store the value in a Secret, name the Secret in `spec.filesFrom`, and write `{file: KEY}`.",
		},
		{
			ID:      "object-ssh-agent",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A login needs the SSH agent, which belongs to the server.",
			Cause: "`agent` is `true`. Or a private key has a passphrase, and `passphraseFrom` is not set, so only an agent could " +
				"use the key.",
			Remedy: "Store a private key in a Secret, and set `privateKeyFile` to its key. For an encrypted key, also store the " +
				"passphrase, and set `passphraseFrom`.",
		},
		{
			ID:      "object-no-login",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A host or a bastion has no login.",
			Cause: "On the command line, the default is the SSH agent, `~/.ssh/config` and the default keys of the user. In an " +
				"object, these would belong to the server.",
			Remedy: "Set `privateKeyFile` or `passwordFrom`: in `spec.ssh` for all hosts, or in `ssh` of each host. A bastion has " +
				"its own fields.",
		},
		{
			ID:      "object-local-address",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An address or URL leads to the server itself, or only to a network link of the server.",
			Cause: "The host is `localhost`, a loopback address (`127.0.0.1`, `::1`), an unspecified address (`0.0.0.0`) or a " +
				"link-local address (`169.254.169.254`, `fe80::1`), or some programs read it as one of these: `127.1`, `0x7f000001`. " +
				"An object cannot make the server a node, and cannot reach services that only the server can reach.",
			Remedy: "Write the name or address that the machine has in your network.",
		},
		{
			ID:      "object-bundle-file",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The bundle or a key of the bundle is a file of the server.",
			Cause: "`spec.bundle` is a path, or not a complete reference in a registry. Or an entry of `spec.bundleKeys` does not " +
				"begin with `ed25519:`.",
			Remedy: "Leave `spec.bundle` out for the bundle of `spec.kubernetes.version`. Or push the bundle to a registry, and write " +
				"the reference: `registry.example.com/slipway:v1.37.1`. Write a public key itself into `spec.bundleKeys`.",
		},
	},
}
