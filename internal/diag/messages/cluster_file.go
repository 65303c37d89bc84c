package messages

import "slipway.dev/slipway/api/v1alpha1"

var clusterFile = Section{
	Title: "Reading the cluster file",
	Messages: []Message{
		{
			ID:      "yaml-syntax",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file is not valid YAML.",
			Cause: "The message has the line where the parser stopped. The cause is on that line or just above it: " +
				"indentation, a missing colon or quote, or a tab.",
			Remedy: "Correct that line.",
		},
		{
			ID:      "yaml-too-large",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file is too large when its aliases are expanded.",
			Cause:   "It has more than a million values, or values nested deeper than a hundred levels.",
			Remedy:  "Write it without aliases (`&name`, `*name`).",
		},
		{
			ID:      "empty-file",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file, or standard input, is empty.",
			Remedy:  "Run `slipway create config` to write a complete file.",
		},
		{
			ID:      "multiple-documents",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file has more than one document.",
			Cause:   "A `---` begins a second document.",
			Remedy:  "A cluster file has exactly one `Cluster`: write each cluster to its own file.",
		},
		{
			ID:      "unknown-kind",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The file is not a cluster file.",
			Cause: "`apiVersion` or `kind` is not `slipway.dev/v1alpha1` and `Cluster`: the file belongs to another " +
				"program or describes another kind of object.",
			Remedy: "Name the right file, or correct the two lines. `slipway convert` converts a KubeKey file.",
		},
		{
			ID:      "unknown-field",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "This field does not exist at this place.",
			Cause:   "Its name is misspelt, or it is indented under the wrong parent.",
			Remedy:  "Correct the name or the indentation. The hint names a similar field, or the place of the field.",
		},
		{
			ID:      "wrong-type",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value has a different type than the field.",
			Cause: "It is a number instead of text (`version: 1.37` must be in quotes), a single word instead of a list " +
				"(`roles: worker` must be `roles: [worker]`), or `yes` instead of `true`. YAML reads unquoted numbers, " +
				"dates, `true` and `null` as such; quotes turn them into text.",
			Remedy: "Write a value of the type that the message names, with quotes around text.",
		},
		{
			ID:      "duplicate-key",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A field is given more than once in one mapping.",
			Remedy:  "Keep one of them.",
		},
	},
}

var valuesInFile = Section{
	Title: "Values in the cluster file",
	Messages: []Message{
		{
			ID:      "missing-field",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A required field is missing or empty.",
			Remedy:  "Add the field. [The description of the file](../spec/v1alpha1/cluster.md) lists the values that it accepts.",
		},
		{
			ID:      "invalid-name",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A name is not valid at its place.",
			Cause: "Names of clusters, nodes and hooks have only a–z, 0–9 and `-` (nodes also `.`), with a letter or digit " +
				"first and last. A cluster name has at most 40 characters, a node name at most 63.",
			Remedy: "Change the name.",
		},
		{
			ID:      "invalid-value",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value has the right type, but is not valid.",
			Cause: "The message has the value, and the hint the accepted values.\n\n" +
				"containerd settings (`spec.containerRuntime.config`) are TOML in version 3, without `version`. In this " +
				"version, several plugins have other names than in most examples, and containerd ignores the old names " +
				"without an error. The message has the line of that text, and the hint the new name.",
			Remedy: "Write one of the accepted values.",
		},
		{
			ID:      "unknown-value",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value is not one of the words that the field accepts.",
			Remedy:  "Use one of the words that the hint lists.",
		},
		{
			ID:      "conflicting-fields",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two fields contradict each other, or a setting contradicts Slipway.",
			Cause: "One of the two fields would be ignored. Or a setting overrides a decision of Slipway, such as a data " +
				"directory that Slipway waits for, measures and removes (`root-dir` of the kubelet, `root` of " +
				"containerd).",
			Remedy: "Keep one of the two fields. Leave out a setting that overrides a decision of Slipway, and mount the " +
				"disk at the standard place.",
		},
		{
			ID:      "duplicate-entry",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two entries mean the same.",
			Cause: "Two entries of a list, or two keys of a mapping, mean the same, with one spelling or with two: " +
				"`https://m.example.com` and `https://m.example.com:443/`, `net.core.somaxconn` and " +
				"`net/core/somaxconn`. It is an error if the second entry would break something, or if the two have " +
				"different values: containerd ignores all mirrors of a registry if one is given twice. It is a warning " +
				"if both have the same value and nothing breaks.",
			Remedy: "Keep one of them.",
		},
		{
			ID:      "not-supported-yet",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway recognizes this setting, but does not support it yet.",
			Cause:   "Slipway stops instead of doing something else.",
			Remedy:  "Use the alternative that the hint names, if it has one.",
		},
		{
			ID:      "invalid-port",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value is not a port.",
			Remedy:  "Write a number from 1 to 65535.",
		},
		{
			ID:      "invalid-duration",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The duration is not valid.",
			Cause: "A duration is greater than zero and has units: `90s`, `10m`, `8760h`. A CA must be valid for at least " +
				"as long as its certificates.",
			Remedy: "Write a duration with units, such as `90s`.",
		},
		{
			ID:      "invalid-address",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value is not an address, or this kind of address is not possible here.",
			Cause: "`address` takes an IP address or a host name, without user and port: `ssh.user` and `ssh.port` have " +
				"them. `internalAddress` takes an IP address that other nodes can reach. The address of a load balancer " +
				"cannot be a loopback address, because it means a different machine on each host. Docker Hub is always " +
				"`docker.io`: images have this name, and settings for `index.docker.io` or `hub.docker.com` would never " +
				"be used.",
			Remedy: "Write an address that the field accepts.",
		},
		{
			ID:      "insecure-source",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Content or a password is sent over a connection that is not secure.",
			Cause: "A manifest or a chart comes over plain HTTP, where anyone on the network path can replace it. As a " +
				"warning: a registry password is sent to a server that is not verified, because the registry is listed " +
				"under `insecure`, or a mirror uses plain HTTP.",
			Remedy: "Use `https://`, or pin its checksum: `http://…@sha256:…` for a manifest, `digest` for a chart. For a " +
				"registry, set `caFile`.",
		},
		{
			ID:      "docker-mirror",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Docker cannot use this mirror.",
			Cause: "With `containerRuntime: {type: docker}`, only docker.io can have mirrors, and each mirror is a host " +
				"without a path. Docker would never use other mirrors, or would not start. It would not use the " +
				"cluster's own registry as a mirror either (`private.mirrorOf`).",
			Remedy: "Remove them, and name the mirror in the images; or use containerd, which supports all mirrors.",
		},
		{
			ID:      "docker-credentials",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Docker would send a login to mirrors of docker.io.",
			Cause: "With `containerRuntime: {type: docker}`, Docker sends the login for docker.io to the mirrors of " +
				"docker.io as well. As a warning: Docker does not log in to mirrors. A `registry.auths` entry for a " +
				"mirror applies only to images that have the name of the mirror.",
			Remedy: "Use only the login, only the mirrors, image pull secrets, or containerd.",
		},
		{
			ID:      "no-registry-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No host has the role `registry`.",
			Cause:   "`registry.private` configures the cluster's own registry, or `init registry` must create it.",
			Remedy:  "Give the role to one host: `roles: [registry]`.",
		},
		{
			ID:      "registry-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "`init registry` would change the host, name, port, user, password or CA of the cluster's registry.",
			Cause: "The nodes of a running cluster use these values and could no longer pull images, and `init registry` " +
				"does not change nodes. It also does not configure running nodes for their first registry.",
			Remedy: "Use `slipway apply -f FILE`, which changes the registry and the nodes.",
		},
		{
			ID:      "one-registry",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Several hosts have the role `registry`, but a cluster runs at most one registry.",
			Remedy:  "Remove the role from the other hosts. Add other registries at `registry.auths` and `registry.mirrors`.",
		},
		{
			ID:      "no-hosts",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The cluster has no host.",
			Remedy:  "Run `slipway create config --host root@10.0.0.11=control-plane` to write a file with one host.",
		},
		{
			ID:      "no-control-plane",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "No host has the role `control-plane`.",
			Remedy:  "Give it to one: `roles: [control-plane]`.",
		},
		{
			ID:      "no-etcd-host",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`spec.etcd.type` is `managed`, and no host has the role `etcd`.",
			Remedy:  "Give the role to one, three or five hosts, alone or together with other roles.",
		},
		{
			ID:        "even-members",
			IsWarning: true,
			Summary:   "The number of etcd members is even.",
			Cause: "With `etcd.type: stacked` each control plane has a member, with `managed` each host with the role " +
				"`etcd`. etcd works as long as more than half of the members are up. The last member of an even number " +
				"adds a machine that can fail, but does not let etcd survive one more failure.",
			Remedy: "Remove one or add one.",
		},
		{
			ID:      "missing-role",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A host has no role, so nothing would be installed on it.",
			Remedy:  "Give it `control-plane`, `worker`, both, or `etcd`.",
		},
		{
			ID:      "unknown-role",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The role does not exist.",
			Remedy:  "Use one of the roles: `control-plane`, `worker`, `etcd`, `registry`.",
		},
		{
			ID:        "time-server",
			IsWarning: true,
			Summary:   "`system.ntpServers` names a host of the cluster, but Slipway does not set up time servers.",
			Cause: "The other hosts use this host if a program on it serves the time. The host itself keeps its own " +
				"settings.",
			Remedy: "Name a server of your network instead, or set one up there.",
		},
		{
			ID:      "duplicate-name",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two hosts, hooks or files have the same name.",
			Cause:   "Usually a line was copied, in the file or on the command line.",
			Remedy:  "Rename one of them.",
		},
		{
			ID:      "duplicate-address",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Two hosts have the same address, in the file or on the command line.",
			Cause: "They are the same machine, or a line was copied. Or two copies of snapshots use the same directory, " +
				"and each would remove the other's files.",
			Remedy: "Correct the address. Several machines behind one address are distinguished by `ssh.port`, and each " +
				"needs its own `internalAddress`.",
		},
		{
			ID:      "invalid-label",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The key or value of a label is not valid in Kubernetes.",
			Remedy:  "Use at most 63 characters of letters, digits, `-`, `_` and `.`. The key can have a DNS prefix and `/`.",
		},
		{
			ID:      "reserved-label",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A kubelet is not allowed to set this label on its own node.",
			Cause: "`kubernetes.io` and `k8s.io` are reserved for Kubernetes, except `node.kubernetes.io/…`, " +
				"`kubelet.kubernetes.io/…` and a few others such as `topology.kubernetes.io/zone`.",
			Remedy: "Use your own prefix.",
		},
		{
			ID:      "invalid-taint",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The taint is not valid.",
			Cause:   "The key or value of a taint breaks the rules for labels, or the same taint is given twice.",
			Remedy: "Correct the taint, or remove the copy. The effects are `NoSchedule`, `PreferNoSchedule` and " +
				"`NoExecute`.",
		},
		{
			ID:        "inline-password",
			IsWarning: true,
			Summary:   "The file contains a password, and others can read the file.",
			Cause: "Slipway saves an inline password in the state of the cluster, which only you can read, but not in a " +
				"plan, journal or log.",
			Remedy: "Move the password to a file of mode 0600 or to a variable, and name it in `passwordFrom`.",
		},
	},
}
