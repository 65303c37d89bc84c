package messages

import "slipway.dev/slipway/api/v1alpha1"

var upgrades = Section{
	Title: "Versions and upgrades",
	Intro: "[upgrade.md](upgrade.md) describes upgrades.",
	Messages: []Message{
		{
			ID:      "unsupported-kubernetes",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "This Slipway does not support that minor version of Kubernetes.",
			Cause: "The hint lists the supported ones. You can name any patch version of a supported minor, listed or not. " +
				"You can also name a version of a later minor that a bundle has: a bundle that `slipway bundle import` " +
				"or `pull` added to the cache, or that `--bundle` or `spec.bundle` names.",
			Remedy: "To add a minor, write it to `$SLIPWAY_HOME/releases.yaml` with the versions of all its components: " +
				"[Bundles](bundle.md#versions) shows the format.",
		},
		{
			ID:      "release-catalogue-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The release catalogue `releases.yaml` is not valid.",
			Cause:   "`releases.yaml` in `SLIPWAY_HOME` cannot be read, or a new minor in it does not name every component.",
			Remedy:  "Correct the file. [Bundles](bundle.md) shows the format.",
		},
		{
			ID:      "release-components-differ",
			Code:    v1alpha1.ErrorInternal,
			Summary: "kubeadm expects other images than the release table has.",
			Cause: "The catalogue does not list the patch version, and kubeadm expects other images for it than for the " +
				"rest of its minor.",
			Remedy: "Add the lines of the hint to `releases.yaml`, and build again.",
		},
		{
			ID:        "release-unknown",
			IsWarning: true,
			Summary:   "The release table does not have this version.",
			Cause: "It lists other patch releases of this minor version, and Slipway assumes that this one has the same " +
				"requirements. Or the table does not have the minor version, but a bundle of this version exists. Such " +
				"a version has the components of the bundle, and everything else is as in the newest known minor " +
				"version. It is untested.",
			Remedy: "Test the version before you use it.",
		},
		{
			ID:      "upgrade-path",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "There is no upgrade path to that version.",
			Cause: "An upgrade goes one minor version at a time, and never down. The version is older than the cluster's, " +
				"or a minor in between is neither supported nor in an available bundle.",
			Remedy: "Choose another version from the hint, or provide that bundle.",
		},
		{
			ID:      "upgrade-invalid",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The upgrade request is invalid.",
			Cause: "The file has another version than `--to` or no version, or it has other changes besides the version. " +
				"Or the number of workers that may be unavailable is invalid.",
			Remedy: "Follow the hint.",
		},
		{
			ID:      "upgrade-unfinished",
			Code:    v1alpha1.ErrorConflict,
			Summary: "An upgrade has begun and is unfinished.",
			Cause:   "Its nodes have two versions, and only the upgrade knows their order.",
			Remedy: "Finish it with `slipway resume`, or roll it back with `slipway rollback`; then the cluster can be " +
				"changed again ([Upgrades](upgrade.md)). You can remove permanently lost hosts before that: `slipway " +
				"delete node NAME --forget`.",
		},
		{
			ID:      "upgrade-between-minors",
			Code:    v1alpha1.ErrorConflict,
			Summary: "One minor of an upgrade is complete, but the next one was not started.",
			Cause: "The messages before this one have the reason. All nodes of the cluster have the version that was " +
				"reached, and the cluster can stay at this version. The exit code is 1 (5 if another operation is " +
				"running on the cluster, 130 if the upgrade was interrupted).",
			Remedy: "Fix the cause, then run the command of the hint.",
		},
		{
			ID:      "upgrade-committed",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The upgrade is complete, or is already removing the previous version from hosts.",
			Cause:   "It cannot be rolled back.",
			Remedy: "In the second case, finish it with `slipway resume`. The message names the backup set from before the " +
				"upgrade. You can restore that set with `slipway etcd restore`, but you lose everything that was " +
				"written since ([Upgrades](upgrade.md)).",
		},
		{
			ID:      "new-kinds-in-use",
			Code:    v1alpha1.ErrorConflict,
			Summary: "The earlier version does not know the kinds of some existing objects.",
			Cause: "After a rollback these objects could be neither listed nor deleted. As a warning: there may be such " +
				"objects, because not every API server could be queried, or because the release table does not know the " +
				"minor of the newer version.",
			Remedy: "Delete the named objects, or finish the upgrade. A restore of the backup set from before the upgrade, " +
				"which the hint names, also removes them, together with everything else that was written since.",
		},
		{
			ID:      "upgrade-node-unready",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A node is not ready before its upgrade, so Slipway could not detect whether the upgrade harmed it.",
			Remedy:  "Fix the node, or remove it from the cluster, and try again.",
		},
		{
			ID:      "kube-proxy-behind",
			Code:    v1alpha1.ErrorInternal,
			Summary: "A node was upgraded, and its kube-proxy did not apply a new change of Services within three minutes.",
			Cause: "Until it does, requests that reach a Service through this node may fail, so the node remains cordoned " +
				"and the upgrade stops. Slipway reads the metrics of kube-proxy at `127.0.0.1:10249`, the default of " +
				"`metricsBindAddress`.",
			Remedy: "Read the log of kube-proxy (`kubectl -n kube-system logs -l k8s-app=kube-proxy --prefix`), fix the " +
				"cause, then run `slipway resume NAME`.",
		},
		{
			ID:      "api-not-asked",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "No API server answers, so the cluster cannot be checked before the upgrade.",
			Remedy:  "Repair the control plane first: `slipway cluster-info` shows what is wrong.",
		},
		{
			ID:      "api-removed",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A client uses an API that the upgrade removes.",
			Cause: "According to the counter of an API server (`apiserver_requested_deprecated_apis`), a client uses an " +
				"API that a version on the upgrade path no longer serves. The client would stop working. The audit log " +
				"names the client (`k8s.io/removed-release`). An API server resets this counter when it restarts.",
			Remedy: "Change the client to the next version of the API. To restart an API server, move its manifest out of " +
				"`/etc/kubernetes/manifests` and back. If you know that no client uses the API any longer, use " +
				"`--ignore-check api-removed`.",
		},
		{
			ID:        "api-deprecated",
			IsWarning: true,
			Summary:   "An API is in use that a later version than the target version removes.",
			Remedy:    "Change the client before the cluster reaches that version.",
		},
		{
			ID:      "disruption-budget",
			Code:    v1alpha1.ErrorConflict,
			Summary: "A PodDisruptionBudget currently allows no disruption.",
			Cause: "A node with one of its pods cannot be drained, and the upgrade would wait there until the drain times " +
				"out. Between two minor versions, the upgrade first waits up to five minutes for pods that it has " +
				"moved.",
			Remedy: "Fix the unhealthy pods, run more replicas, or relax the budget.",
		},
		{
			ID:      "upgrade-capacity",
			Code:    v1alpha1.ErrorCapacity,
			Summary: "The pods of a node request more CPU or memory than all suitable nodes together have free.",
			Cause:   "While the node is drained, some pods cannot run, and a budget may block the drain until it times out.",
			Remedy:  "Add a node, or run fewer pods, for the time of the upgrade.",
		},
		{
			ID:      "kubelet-skew",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The upgrade would exceed the allowed version skew of a kubelet.",
			Cause:   "API servers may be at most three minor versions newer than a kubelet.",
			Remedy: "If Slipway manages the node, remove it and add it again. Otherwise its owner must upgrade it or remove " +
				"it from the cluster.",
		},
		{
			ID:      "webhook-unanswered",
			Code:    v1alpha1.ErrorUnreachable,
			Summary: "An admission webhook cannot be called.",
			Cause: "An admission webhook has `failurePolicy: Fail`, and its Service has no ready endpoint. Requests that " +
				"it must review fail, including requests of an upgrade.\n\n" +
				"As a warning: calls to a webhook have failed since an API server started, according to the counter of " +
				"that API server. The requests were rejected, or continued without the webhook (`failurePolicy: " +
				"Ignore`). It may answer now, but not during the upgrade. The counter is reset when the API server " +
				"restarts.",
			Remedy: "Start the pods of the webhook, or delete its configuration.\n\n" +
				"The log of the API server has the cause: `failed calling webhook`.",
		},
		{
			ID:      "bundle-missing",
			Code:    v1alpha1.ErrorUserInput,
			Summary: "The upgrade path has several versions, and the bundle of a later one is missing.",
			Cause:   "The upgrade would stop there.",
			Remedy: "Build it with `slipway bundle build --kubernetes VERSION`. If bundles can be built at any time, " +
				"`--ignore-check bundle-missing` builds each one when it is needed.",
		},
		{
			ID:      "etcd-unready",
			Code:    v1alpha1.ErrorInternal,
			Summary: "etcd has a problem.",
			Cause: "A member does not answer, has no leader or has an alarm, and the upgrade is about to restart another " +
				"member. As a warning: a database that is nearly full, or a member that lags behind.",
			Remedy: "Fix etcd first. `slipway etcd health` shows details.",
		},
	},
}
