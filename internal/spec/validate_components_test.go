package spec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"slipway.dev/slipway/api/v1alpha1"
)

// TestComponents_FollowTheVersion has flags and feature gates of versions that have them, and of others.
func TestComponents_FollowTheVersion(t *testing.T) {
	type args = map[string]string
	for name, tc := range map[string]struct {
		version string
		set     func(*v1alpha1.Kubernetes, *v1alpha1.Etcd)
		want    []string
	}{
		"nothing": {"v1.37.1", func(*v1alpha1.Kubernetes, *v1alpha1.Etcd) {}, nil},
		"flags that there are": {"v1.37.1", func(k *v1alpha1.Kubernetes, e *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"v": "4", "profiling": "false", "event-ttl": "2h", "feature-gates": "kube:AllAlpha=false, AllBeta=true"}
			k.ControllerManager.ExtraArgs = args{"terminated-pod-gc-threshold": "50", "feature-gates": "AllAlpha=false"}
			k.Scheduler.ExtraArgs = args{"kube-api-qps": "1.5"}
			k.Kubelet.ExtraArgs = args{"root-dir": "/data/kubelet"}
			e.ExtraArgs = args{"heartbeat-interval": "250"}
		}, nil},
		"a flag that has gone": {"v1.37.1", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.ControllerManager.ExtraArgs = args{"pod-eviction-timeout": "30s"}
			k.Scheduler.ExtraArgs = args{"address": "0.0.0.0"}
			k.Kubelet.ExtraArgs = args{"pod-infra-container-image": "pause"}
		}, []string{
			"error spec.kubernetes.controllerManager.extraArgs[pod-eviction-timeout] kube-controller-manager v1.37.1 " +
				"has no flag --pod-eviction-timeout; leave it out",
			"error spec.kubernetes.scheduler.extraArgs[address] kube-scheduler v1.37.1 has no flag --address; leave it out",
			"error spec.kubernetes.kubelet.extraArgs[pod-infra-container-image] kubelet v1.37.1 has no flag " +
				"--pod-infra-container-image; leave it out",
		}},
		"a flag of another minor": {"v1.37.1", func(_ *v1alpha1.Kubernetes, e *v1alpha1.Etcd) {
			e.ExtraArgs = args{"experimental-initial-corrupt-check": "true"}
		}, []string{
			"error spec.etcd.extraArgs[experimental-initial-corrupt-check] etcd 3.7.0 has no flag " +
				"--experimental-initial-corrupt-check; leave it out: only v1.35 and v1.36 have it",
		}},
		"and of this one": {"v1.36.4", func(_ *v1alpha1.Kubernetes, e *v1alpha1.Etcd) {
			e.ExtraArgs = args{"experimental-initial-corrupt-check": "true"}
		}, nil},
		"a typing error": {"v1.37.1", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"audit-log-maxages": "3"}
			k.FeatureGates = map[string]bool{"AlAlpha": true}
		}, []string{
			"error spec.kubernetes.apiServer.extraArgs[audit-log-maxages] kube-apiserver v1.37.1 has no flag " +
				"--audit-log-maxages; did you mean audit-log-maxage?",
			`error spec.kubernetes.featureGates[AlAlpha] Kubernetes v1.37.1 has no feature gate "AlAlpha"; did you mean AllAlpha?`,
		}},
		"values of another type": {"v1.37.1", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"profiling": "", "event-ttl": "2", "audit-log-maxage": "many"}
		}, []string{
			`error spec.kubernetes.apiServer.extraArgs[audit-log-maxage] "many" is not a value of --audit-log-maxage, which is of type int; `,
			`error spec.kubernetes.apiServer.extraArgs[event-ttl] "2" is not a value of --event-ttl, which is of type duration; write a ` +
				`number and a unit (h, m or s): 90s, 10m`,
			`error spec.kubernetes.apiServer.extraArgs[profiling] "" is not a value of --profiling, which is of type bool; write "true" or "false"`,
		}},
		"gates that have gone": {"v1.37.1", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.FeatureGates = map[string]bool{"TTLAfterFinished": true, "SidecarContainers": true}
		}, []string{
			`error spec.kubernetes.featureGates[SidecarContainers] Kubernetes v1.37.1 has no feature gate "SidecarContainers"; leave it out: ` +
				`only v1.35 and v1.36 have it`,
			`error spec.kubernetes.featureGates[TTLAfterFinished] Kubernetes v1.37.1 has no feature gate "TTLAfterFinished"; leave it out`,
		}},
		"a locked gate": {"v1.36.4", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.FeatureGates = map[string]bool{"SidecarContainers": false, "JobSuccessPolicy": true}
			k.Kubelet.Config = map[string]any{"featureGates": map[string]any{"SidecarContainers": false}}
		}, []string{
			"error spec.kubernetes.featureGates[SidecarContainers] feature gate SidecarContainers is locked to true in " +
				"Kubernetes v1.36: no component would start with this value; leave it out",
			"error spec.kubernetes.kubelet.config[featureGates][SidecarContainers] feature gate SidecarContainers is " +
				"locked to true in Kubernetes v1.36: no component would start with this value; leave it out",
		}},
		"a gate that one component lacks": {"v1.36.4", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.FeatureGates = map[string]bool{"ControllerManagerReleaseLeaderElectionLockOnExit": true}
		}, []string{
			`error spec.kubernetes.featureGates[ControllerManagerReleaseLeaderElectionLockOnExit] kube-scheduler v1.36.4 has no feature gate ` +
				`"ControllerManagerReleaseLeaderElectionLockOnExit", and would not start; set the gate only for the components that have it: ` +
				`kubelet.config.featureGates, or feature-gates in extraArgs`,
		}},
		"and those that have it": {"v1.36.4", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.ControllerManager.ExtraArgs = args{"feature-gates": "ControllerManagerReleaseLeaderElectionLockOnExit=true"}
		}, nil},
		"gates in two places": {"v1.37.1", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.FeatureGates = map[string]bool{"AllAlpha": false}
			k.Scheduler.ExtraArgs = args{"feature-gates": "AllBeta=yes,TTLAfterFinished=true"}
			k.Kubelet.ExtraArgs = args{"feature-gates": "AllBeta=true"}
		}, []string{
			"error spec.kubernetes.scheduler.extraArgs[feature-gates] kube-scheduler would use these feature gates, " +
				"and none from spec.kubernetes.featureGates; write all feature gates at spec.kubernetes.featureGates, or all of them here",
			`error spec.kubernetes.scheduler.extraArgs[feature-gates] "AllBeta=yes" is not a feature gate setting; write NAME=true or ` +
				`NAME=false, separated by commas`,
			`error spec.kubernetes.scheduler.extraArgs[feature-gates] Kubernetes v1.37.1 has no feature gate "TTLAfterFinished"; leave it out`,
		}},
		"a newer patch": {"v1.37.99", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.FeatureGates = map[string]bool{"SidecarContainers": true, "Newest": true}
		}, []string{
			`warning spec.kubernetes.featureGates[Newest] Kubernetes v1.37.99 has no feature gate "Newest" in the versions known to this ` +
				`Slipway; the newest one is v1.37.1; leave it out`,
			`error spec.kubernetes.featureGates[SidecarContainers] Kubernetes v1.37.99 has no feature gate "SidecarContainers"; leave it out: ` +
				`only v1.35 and v1.36 have it`,
		}},
		"a newer minor": {"v1.99.0", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"newest": "1"}
		}, []string{
			"warning spec.kubernetes.apiServer.extraArgs[newest] kube-apiserver v1.99.0 has no flag --newest in the " +
				"versions known to this Slipway; the newest one is v1.37.1; leave it out",
		}},
		"a version that is not installed": {"v1.20.0", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"insecure-port": "0"}
		}, nil},
		"no version": {"newest", func(k *v1alpha1.Kubernetes, _ *v1alpha1.Etcd) {
			k.APIServer.ExtraArgs = args{"newest": "1"}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Cluster{}
			tc.set(&c.Spec.Kubernetes, &c.Spec.Etcd)
			var got []string
			for _, d := range ComponentSettings(c, tc.version) {
				got = append(got, strings.Join([]string{string(d.Severity), d.Path, d.Message + "; " + d.Hint}, " "))
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
