package messages

import "slipway.dev/slipway/api/v1alpha1"

var kubernetesSettings = Section{
	Title: "Kubernetes settings in the cluster file",
	Messages: []Message{
		{
			ID:      "invalid-version",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value is not a Kubernetes version.",
			Remedy:  "Write a version of the form `vX.Y.Z`, such as `v1.37.1`.",
		},
		{
			ID:      "unsupported-version",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "This Slipway cannot install that version.",
			Remedy: "Choose a supported version: `slipway version --supported` lists them. Slipway can also install a later " +
				"minor version that [a bundle has](#unsupported-kubernetes).",
		},
		{
			ID:      "endpoint-mode",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The endpoint mode does not allow several control planes.",
			Cause: "With several control planes, nodes need an address that leads to a control plane that is running. Mode " +
				"`none` has only the address of the first one. `add nodes` does not change the mode: a cluster with " +
				"mode `none` needs another mode first.",
			Remedy: "Leave the mode out for the default `haproxy`, or write `external` at `spec.controlPlaneEndpoint`, with " +
				"the address of a load balancer. Or give the role `control-plane` to only one host.",
		},
		{
			ID:      "unknown-kubelet-field",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The kubelet does not have this field, or the field has another type.",
			Cause: "`kubelet.config` accepts the fields of `KubeletConfiguration` (`kubelet.config.k8s.io/v1beta1`) in the " +
				"version of the cluster, with their types at every level. The kubelet does not start with an unknown " +
				"field. For a Kubernetes version that is newer than all versions known to this Slipway it is a warning: " +
				"the kubelet may support the field, and its start shows whether it does.",
			Remedy: "Correct or remove the field. The hint names a similar one.",
		},
		{
			ID:      "invalid-argument",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The argument of a component is not valid.",
			Cause: "An argument is written by its name without dashes, as in `v: \"2\"`. The value is one line of text and " +
				"has the type of the flag: `true`, `30s`, `5`.",
			Remedy: "Correct the name or the value.",
		},
		{
			ID:      "unknown-argument",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The component has no such flag in the version of the cluster, and would not start with it.",
			Cause: "Slipway knows the flags of all components for every supported minor version. A version that is newer " +
				"than those known to Slipway can have more flags: then it is a warning.",
			Remedy: "Correct or remove the argument. The hint names a similar flag, or the minor versions that have this " +
				"one.",
		},
		{
			ID:      "feature-gate",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A component cannot have this feature gate or this value.",
			Cause: "The feature gate is unknown in the version of the cluster, or is locked to the other value, or is " +
				"unknown to one of the components that get it. Components would not start.",
			Remedy: "Correct or remove the gate. Kubernetes removes a gate some minor versions after its feature is always " +
				"on. Before an upgrade, remove it with a separate `apply`.",
		},
		{
			ID:        "hardening-overruled",
			IsWarning: true,
			Summary:   "The file replaces settings of `kubernetes.hardening`.",
			Cause: "`kubernetes.hardening` is on, and the file has a different value for one of its settings. Your value " +
				"is used. For anonymous access to the API server, your own arguments (`authentication-config`, " +
				"`anonymous-auth`, `oidc-…`) replace Slipway's file completely.",
			Remedy: "Remove your arguments if you do not need them.",
		},
		{
			ID:      "encryption-provider",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "`kubernetes.encryption.provider` names an encryption provider that Slipway does not set up.",
			Cause: "`aesgcm` needs a new key every 200,000 writes, and a key management service would have to run before " +
				"the API does.",
			Remedy: "Leave the field out for `secretbox`.",
		},
		{
			ID:      "encryption-resource",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The list of resources to encrypt is not valid.",
			Cause: "`kubernetes.encryption.resources` names a resource that cannot be encrypted, or lists one more than " +
				"once.",
			Remedy: "Name each resource that can be encrypted at most once. The message lists the possible resources.",
		},
		{
			ID:      "encryption-foreign",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The API servers use an encryption configuration that Slipway did not create.",
			Cause: "It is set with `--encryption-provider-config`, in `apiServer.extraArgs` or in a manifest. " +
				"`kubernetes.encryption` would replace it with a configuration that has none of its keys.",
			Remedy: "Keep your configuration and leave `kubernetes.encryption` out. Or decrypt everything first: put " +
				"`identity` first in your configuration, rewrite every object, remove the argument, apply, and then " +
				"enable encryption.",
		},
		{
			ID:      "encryption-control-planes",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "The encryption keys are to be changed, but a control plane is unreachable or about to leave.",
			Cause:   "It would still write with a key that the others are about to remove. Nothing was changed.",
			Remedy: "Make the control plane reachable, or remove it (`slipway delete node NAME`) while the file still has " +
				"the previous encryption settings. Then apply the change. If a change of keys was interrupted, finish " +
				"it with `slipway resume` or `slipway apply -f FILE`.",
		},
		{
			ID:      "encryption-keys-lost",
			Code:    v1alpha1.ErrorInternal,
			Summary: "No control plane has the encryption keys.",
			Cause: "The API servers are configured to read Secrets with `/etc/kubernetes/slipway/encryption.yaml`, but no " +
				"control plane has that file. Nothing was changed: the stored data cannot be read with another key. A " +
				"running API server has the keys until it stops, so do not restart it.",
			Remedy: "Restore the file from a backup set (`slipway etcd snapshot` puts the keys into each set), then apply " +
				"again. If encryption was only about to be enabled, and nothing is encrypted yet, remove " +
				"`--encryption-provider-config` from the manifests of the API servers instead.",
		},
		{
			ID:      "invalid-cidr",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The value is not an address range.",
			Remedy:  "Write an address and a prefix length, without bits outside the mask: `10.244.0.0/16`.",
		},
		{
			ID:      "cidr-size",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The range is too large or too small.",
			Cause: "Each host takes a `/24` (IPv6: a `/64`) from the pod range, or the size set in the controller " +
				"manager's `extraArgs` (`node-cidr-mask-size`, or `node-cidr-mask-size-ipv4` and `-ipv6`, which dual " +
				"stack needs). The range can be at most 16 bits larger. Services take a `/12` to a `/28` (IPv6: a " +
				"`/108` to a `/124`).",
			Remedy: "Write a range of a suitable size.",
		},
		{
			ID:      "cidr-overlap",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "An address would have two meanings.",
			Cause: "The ranges of pods and services overlap, or one of them contains a host. Pods cannot reach external " +
				"addresses in these ranges.",
			Remedy: "Use ranges that contain no address that the cluster communicates with.",
		},
		{
			ID:      "ip-families",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The IP versions do not match.",
			Cause: "Dual stack needs one IPv4 and one IPv6 range; two ranges of one version are not possible. Services " +
				"need pods of their IP version. The first pod range, the first service range and the addresses of the " +
				"hosts have the same version.",
			Remedy: "Use ranges of the same IP versions for pods, services and hosts.",
		},
	},
}

var namedFiles = Section{
	Title: "Files that the cluster file names",
	Messages: []Message{
		{
			ID:      "ssh-key-unreadable",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A private key is missing, cannot be read by you, or is not in a format that SSH supports.",
			Cause:   "Paths are relative to the cluster file; `~` is your home directory.",
			Remedy:  "Name a readable key, or correct its permissions.",
		},
		{
			ID:        "ssh-key-encrypted",
			IsWarning: true,
			Summary:   "The key has a passphrase, and `passphraseFrom` is not set.",
			Cause:     "It works if an agent has the key.",
			Remedy:    "Otherwise, name a file or a variable at `passphraseFrom`.",
		},
		{
			ID:      "secret-unreadable",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A secret cannot be read, or is empty.",
			Cause: "A file or environment variable for a password or a passphrase is missing or empty, or cannot be read. " +
				"With `sudo`, variables are only passed on with `sudo --preserve-env=NAME`. A lost key does not show " +
				"that a host is lost, so `--forget` does not ignore this error.",
			Remedy: "Name another key in the file. If no host accepts it, the hosts count as unreachable.",
		},
		{
			ID:        "file-permissions",
			IsWarning: true,
			Summary:   "Other users of this machine can read a key or a secret.",
			Remedy:    "Run `chmod 600` on the file.",
		},
		{
			ID:      "file-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file that the cluster file names cannot be read.",
			Cause: "A script or material of a hook, a certificate or key for an external etcd, or the bundle is missing, " +
				"cannot be read, or is a directory. Paths are relative to the cluster file.",
			Remedy: "Correct the path, or create the file.",
		},
		{
			ID:      "certificate-unfit",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "A file under `spec.etcd.external` cannot be used.",
			Cause: "It is not a PEM certificate, it has expired or is not valid yet, or the key does not match the " +
				"certificate or has a passphrase. The API servers would not start with it.",
			Remedy: "Name a valid certificate and its key, without a passphrase. `openssl x509 -noout -text -in FILE` shows " +
				"the content of a certificate.",
		},
	},
}
