package manifests

import (
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.dev/slipway/api/v1alpha1"
)

// Ports of the container.
const (
	webhookPort = 9443
	probePort   = 8081
	metricsPort = 8443
)

const (
	// dataVolumeName is the name of the volume of the data directory.
	dataVolumeName = "data"
	// user is the user of the container.
	user = 65532
	// dataPath is the directory of bundles, backup sets and the archive, and tempPath the directory for temporary files.
	dataPath = "/var/lib/slipwayd"
	tempPath = "/tmp"
	// stopSeconds is the time in which running operations reach a safe point.
	stopSeconds = 90
	// awaySeconds is how long a Pod remains on a node that does not answer.
	awaySeconds = 20
)

var selector = map[string]string{labelName: Name}

func newNamespace() *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: Namespace, Labels: map[string]string{
			"pod-security.kubernetes.io/enforce": "restricted",
		}},
	}
}

func newServiceAccount() *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: Namespace},
	}
}

func listPullSecrets(o Options) (out []corev1.LocalObjectReference) {
	for _, name := range o.PullSecrets {
		out = append(out, corev1.LocalObjectReference{Name: name})
	}
	return out
}

func newService() *corev1.Service {
	return &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Service"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName, Namespace: Namespace},
		Spec: corev1.ServiceSpec{
			Selector: selector,
			Ports:    []corev1.ServicePort{{Name: "webhook", Port: 443, TargetPort: intstr.FromString("webhook"), Protocol: corev1.ProtocolTCP}},
		},
	}
}

func newDisruptionBudget() *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: Namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: selector}},
	}
}

func newDeployment(o Options) *appsv1.Deployment {
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType}
	if o.DataClaim != "" && o.Replicas == 1 { // a second Pod would wait for the volume
		strategy.Type = appsv1.RecreateDeploymentStrategyType
	}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: Namespace},
		Spec: appsv1.DeploymentSpec{
			Strategy: strategy,
			Replicas: &o.Replicas, Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector},
				Spec:       newPodSpec(o),
			},
		},
	}
}

func newPodSpec(o Options) corev1.PodSpec {
	yes, id, stop := true, int64(user), int64(stopSeconds)
	return corev1.PodSpec{
		ServiceAccountName:            Name,
		TerminationGracePeriodSeconds: &stop,
		ImagePullSecrets:              listPullSecrets(o), // Jobs have another ServiceAccount
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers:  []corev1.Container{newContainer(o)},
		Volumes:     []corev1.Volume{{Name: dataVolumeName, VolumeSource: newDataVolume(o)}, {Name: "tmp", VolumeSource: newEmptyVolume()}},
		Tolerations: newTolerations(),
		// Replicas on one node would fail together.
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 100, PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: selector},
				},
			}},
		}},
	}
}

// newTolerations returns tolerations for control planes, because a cluster can have no other nodes. They let another Pod
// start soon after a node has failed.
func newTolerations() []corev1.Toleration {
	away := int64(awaySeconds)
	return []corev1.Toleration{
		{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &away},
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &away},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}
}

func newEmptyVolume() corev1.VolumeSource {
	return corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
}

func newDataVolume(o Options) corev1.VolumeSource {
	if o.DataClaim == "" {
		return newEmptyVolume()
	}
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.DataClaim}}
}

func newContainer(o Options) corev1.Container {
	yes, no := true, false
	address := func(port int) string { return ":" + strconv.Itoa(port) }
	args := []string{
		"operator", "--data-dir", dataPath, "--namespace", Namespace, "--probe-listen", address(probePort),
		"--metrics-listen", address(metricsPort), "--webhook-listen", address(webhookPort),
	}
	if o.Executor == ExecutorJob {
		args = append(args, "--executor", o.Executor)
	}
	if o.DataClaim != "" {
		args = append(args, "--archive-dir", dataPath+"/archive", "--max-cache-size", "0")
	}
	if o.APIURL != "" {
		args = append(args, "--api-url", o.APIURL)
	}
	probe := func(path string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString("probes")}},
			PeriodSeconds: 10, TimeoutSeconds: 5,
		}
	}
	return corev1.Container{
		Name: Container, Image: o.Image, Args: args, ImagePullPolicy: corev1.PullIfNotPresent,
		Ports: []corev1.ContainerPort{
			{Name: "webhook", ContainerPort: webhookPort, Protocol: corev1.ProtocolTCP},
			{Name: "probes", ContainerPort: probePort, Protocol: corev1.ProtocolTCP},
			{Name: "metrics", ContainerPort: metricsPort, Protocol: corev1.ProtocolTCP},
		},
		ReadinessProbe: probe("/readyz"), LivenessProbe: probe("/healthz"),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		VolumeMounts: []corev1.VolumeMount{{Name: dataVolumeName, MountPath: dataPath}, {Name: "tmp", MountPath: tempPath}},
	}
}

// newWebhook returns the configuration of the webhook. The operator adds its CA.
//
// An operator that does not run must not stop others: the deletion of other namespaces is then allowed, and the
// controllers keep a Cluster whose namespace is being deleted.
func newWebhook() *admissionregistrationv1.ValidatingWebhookConfiguration {
	path, port, timeout := WebhookPath, int32(443), int32(10)
	none, fail, ignore := admissionregistrationv1.SideEffectClassNone, admissionregistrationv1.Fail, admissionregistrationv1.Ignore
	namespaced, global := admissionregistrationv1.NamespacedScope, admissionregistrationv1.ClusterScope
	one := func(
		name string, policy *admissionregistrationv1.FailurePolicyType, rule admissionregistrationv1.RuleWithOperations,
	) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, FailurePolicy: policy, SideEffects: &none, TimeoutSeconds: &timeout, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionregistrationv1.RuleWithOperations{rule},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{
				Namespace: Namespace, Name: WebhookName, Path: &path, Port: &port,
			}},
		}
	}
	return &admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: WebhookName},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{
			one("clusters."+v1alpha1.Group, &fail, admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{v1alpha1.Group}, APIVersions: []string{v1alpha1.Version}, Resources: []string{"clusters"}, Scope: &namespaced,
				},
			}),
			one("namespaces."+v1alpha1.Group, &ignore, admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Delete},
				Rule: admissionregistrationv1.Rule{
					APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"namespaces"}, Scope: &global,
				},
			}),
		},
	}
}
