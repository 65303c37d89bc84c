package messages

import "slipway.dev/slipway/api/v1alpha1"

var certificates = Section{
	Title: "Certificates and CAs",
	Intro: "[certificates.md](certificates.md) describes the commands.",
	Messages: []Message{
		{
			ID:      "certificate-expires",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A certificate has expired, or expires soon.",
			Cause: "Reported by `certs check` and `cluster-info`. The limit is thirty days, or the last fifth of the " +
				"lifetime if that is shorter, or the time of `--within`. For a CA, the limit is ninety days; when a CA " +
				"expires, all its certificates become invalid.",
			Remedy: "Renew certificates with `slipway certs renew NAME`. Kubelets renew their own certificates; a warning " +
				"means that this did not happen, and the kubelet's log has the reason. See " +
				"[Certificates](certificates.md).",
		},
		{
			ID:      "certificate-unusable",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A certificate cannot be used.",
			Cause: "Reported by `certs check` and `cluster-info`. The certificate is missing or unreadable, has no " +
				"matching key, or was not signed by the CA on its host. It was probably moved or replaced.",
			Remedy: "Restore it from a backup. If only its key is lost, `slipway certs renew NAME` creates a new " +
				"certificate with a new key.",
		},
		{
			ID:      "authority-key-missing",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A CA on a control plane, or on a host with etcd, has no key, or has the key of another CA.",
			Cause:   "It cannot sign. `certs renew` refuses certificates that need it, and changes nothing.",
			Remedy: "Restore the key from a backup, or from another control plane, which has the same key: " +
				"`/etc/kubernetes/pki/ca.key`, `front-proxy-ca.key`, `etcd/ca.key`. If the keys are stored elsewhere on " +
				"purpose, renew the certificates there. " +
				"With `--ignore-errors`, the operation continues with the other hosts.",
		},
		{
			ID:      "certificate-request-refused",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "The manager does not sign the certificate request of a control plane.",
			Cause: "The request is for the certificate with which the API server authenticates to etcd. The key is weak " +
				"(RSA below 2048 bits, or an unusual curve), or the request is not signed with its own key. Nothing was " +
				"changed.",
			Remedy: "Check `/etc/kubernetes/pki/apiserver-etcd-client.key` on that host. Slipway creates a good key if the " +
				"file is missing: move a foreign or weak key away, then run `slipway resume NAME`. If the key is " +
				"Slipway's own, the host runs unexpected software: find the cause before you continue.",
		},
		{
			ID:      "authority-expired",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A CA has expired, and with it every certificate that it signed.",
			Cause: "Reported by `certs renew` and `certs rotate-ca`. Renewed certificates would not be valid either, and a " +
				"rotation of the cluster CA or the etcd CA needs a cluster that responds. Both are refused before " +
				"anything is changed.",
			Remedy: "See [Certificates](certificates.md#an-authority-that-has-expired). Rotate a CA before it expires.",
		},
		{
			ID:      "certificate-foreign",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A certificate is due for renewal, but the CA on its host did not sign it.",
			Cause: "Reported by `certs renew`. One of the two was replaced. Clients that trust the other CA would not " +
				"trust a certificate from this one, so Slipway does not renew it.",
			Remedy: "Renew the certificate at its issuer, or restore the cluster's own certificate. " +
				"With `--ignore-errors`, the operation continues with the other hosts.",
		},
		{
			ID:      "kubelet-certificate-missing",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A kubelet has no serving certificate from the cluster.",
			Cause: "It did not get one within four minutes, or does not use it. The message names the pending requests of " +
				"the kubelet with their reasons: a request has another name or address than Slipway knows for the node.",
			Remedy: "Read `journalctl -u kubelet` on the node, and run `kubectl get csr`. Correct the address or the name " +
				"of the node in the cluster file, then run `slipway resume NAME`. To let kubelets sign their own " +
				"certificates instead, set `serverTLSBootstrap: false` " +
				"([certificates](certificates.md#serving-certificates-of-kubelets)).",
		},
		{
			ID:      "unknown-certificate",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no certificate with this name to renew.",
			Cause: "Reported by `certs renew`. CAs cannot be renewed. Kubelets renew their own certificates, and get new " +
				"ones if they cannot.",
			Remedy: "`slipway certs check NAME` lists the names.",
		},
		{
			ID:      "validity-beyond-authority",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The requested validity is longer than the remaining lifetime of the CA.",
			Cause: "Reported by `certs renew`. The requested validity is `spec.kubernetes.certificates.validity`. The " +
				"certificates are valid until the CA expires.",
			Remedy: "Rotate the CA before it expires.",
		},
		{
			ID:      "renewal-timer",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The timer for automatic renewals is not active on the host, or was changed.",
			Cause: "Reported by `certs check`. The hosts of this cluster should renew their certificates automatically " +
				"(`spec.kubernetes.certificates.autoRenew`). Clusters that are older than this feature have no timer.",
			Remedy: "Set it up with `slipway apply NAME`. If the timer is active but has not run for days, find the cause " +
				"on the host: `journalctl -u slipway-certs`.",
		},
		{
			ID:      "renewal-failed",
			Code:    v1alpha1.ErrorInternal,
			Summary: "The automatic renewal of a host failed.",
			Cause: "Reported by `certs check`. The message has the reason. Certificates that could be renewed were " +
				"renewed, and the host tries again automatically.",
			Remedy: "To renew now and see more details, run `slipway certs renew NAME`. The log on the host is `journalctl " +
				"-u slipway-certs`.",
		},
		{
			ID:      "unknown-authority",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no CA or key with this name to rotate.",
			Cause:   "Reported by `certs rotate-ca`.",
			Remedy: "Use `--which service-account` (the key that signs service account tokens), `--which front-proxy` (the " +
				"front proxy CA), `--which etcd` (the etcd CA) or `--which cluster` (the CA for API servers, kubelets " +
				"and API clients). The cluster CA must be rotated separately.",
		},
		{
			ID:      "account-key-missing",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A control plane has no readable service account key.",
			Cause: "Reported by `certs rotate-ca`. Without `/etc/kubernetes/pki/sa.pub`, it is unknown which tokens the " +
				"API server accepts. Nothing was changed.",
			Remedy: "Restore the file from a backup or from another control plane: it is the same on all of them.",
		},
		{
			ID:      "account-key-elsewhere",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway does not manage the service account key.",
			Cause: "Reported by `certs rotate-ca`. Because of `extraArgs` in the cluster file, API servers or controller " +
				"managers use another key. Nothing was changed.",
			Remedy: "Rotate the key where it is kept, or remove the argument and apply the file first.",
		},
		{
			ID:      "tokens-held",
			Code:    v1alpha1.ErrorConflict,
			Summary: "All tokens are signed with the new service account key, but the old key is still needed.",
			Cause: "Reported by `certs rotate-ca`. The message names what holds a token signed with the old key. The old " +
				"key is kept, and the cluster serves with both.",
			Remedy: "Release the old key:\n\n" +
				"- A bare pod, or a pod of a Job, is not recreated: delete it, or wait until it ends.\n" +
				"- For a paused workload, or one with `OnDelete`, delete the pods.\n" +
				"- For a Secret with a token that does not expire, delete the Secret or recreate it.\n\n" +
				"Then run `slipway resume NAME`.",
		},
		{
			ID:      "authority-missing",
			Code:    v1alpha1.ErrorCredentials,
			Summary: "A host has no readable file with the CA.",
			Cause:   "Reported by `certs rotate-ca`. It is unknown which CAs the host trusts. Nothing was changed.",
			Remedy:  "Restore the file from a backup or from another host: it is the same on all of them.",
		},
		{
			ID:      "authority-elsewhere",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "Slipway does not manage the CA.",
			Cause: "Reported by `certs rotate-ca`. Because of `extraArgs` in the cluster file, API servers use another CA. " +
				"Nothing was changed.",
			Remedy: "Rotate the CA where it is kept, or remove the argument and apply the file first.",
		},
		{
			ID:      "authority-held",
			Code:    v1alpha1.ErrorConflict,
			Summary: "All certificates are signed by the new CA, but the old CA may still be needed.",
			Cause: "Reported by `certs rotate-ca`. The message names the APIs that may not trust the new CA yet. The old " +
				"CA is kept, and the cluster serves with both.",
			Remedy: "If the API of an `APIService` does not answer the API servers, run `kubectl get apiservice` and read " +
				"the logs of its pods. The logs have `x509` errors if the pods do not follow ConfigMap " +
				"`kube-system/extension-apiserver-authentication`. Such pods must receive the new CA in their own way. " +
				"If the API is not used, delete its `APIService`. Then run `slipway resume NAME`.",
		},
		{
			ID:      "exchange-unfinished",
			Code:    v1alpha1.ErrorConflict,
			Summary: "Hosts trust several CAs of one kind, because a rotation with `certs rotate-ca` is unfinished.",
			Cause:   "Reported by `certs check`. The cluster works with both CAs, but the old one is still trusted.",
			Remedy: "Run the command of the hint, which continues the rotation whatever else was done since, and reports " +
				"what it waits for.",
		},
		{
			ID:      "ca-still-needed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The cluster trusts the old and the new CA.",
			Cause: "Reported by `certs rotate-ca --which cluster`. The message names what trusts only the old CA, or holds " +
				"certificates signed by it. Without the old CA it would reject the API servers, or be rejected by them. " +
				"Both CAs are kept, and the cluster serves.",
			Remedy: "Release the old CA:\n\n" +
				"- A bare pod, or a pod of a Job, is not recreated: delete it, or wait until it ends.\n" +
				"- For a paused workload, or one with `OnDelete`, delete the pods.\n" +
				"- In a ConfigMap, a Secret, a webhook or an API service with the old CA certificate, add the new one. " +
				"`/etc/kubernetes/pki/ca.crt` on every node has both.\n" +
				"- A Secret or ConfigMap can hold valid certificates signed by the old CA, alone or in a kubeconfig. It " +
				"is named when control planes sign with the new CA. Issue new certificates with another " +
				"`CertificateSigningRequest`, or delete unused ones.\n\n" +
				"Then run `slipway resume NAME`.",
		},
	},
}
