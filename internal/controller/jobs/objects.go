package jobs

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"slipway.dev/slipway/api/v1alpha1"
)

const (
	// keptSeconds is how long a Job remains after its end.
	keptSeconds = 3600
	// uidDigits is how much of the UID of an operation the names of its Jobs have.
	uidDigits = 13
	// nameDigits is the length of the random end of the name of a Job.
	nameDigits = 5
)

// newJob returns a Job that does not run yet. Its Pod is a Pod of the Deployment that runs one operation.
func (a *attempt) newJob(template *appsv1.Deployment) (*batchv1.Job, error) {
	o := a.operation
	spec := *template.Spec.Template.Spec.DeepCopy()
	i := slices.IndexFunc(spec.Containers, func(c corev1.Container) bool { return c.Name == a.Container })
	if i < 0 {
		return nil, fmt.Errorf("container %s is missing in Deployment %s/%s", a.Container, a.Namespace, a.Deployment)
	}
	// A new name for each Job: objects of an earlier Job can be about to be deleted.
	name := fmt.Sprintf("slipway-%.*s-%s", uidDigits, o.UID, rand.String(nameDigits))
	container := spec.Containers[i]
	container.Args = runArgs(container.Args, o)
	container.Ports, container.LivenessProbe, container.ReadinessProbe, container.StartupProbe = nil, nil, nil, nil
	container.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	spec.Containers, spec.Affinity = []corev1.Container{container}, nil
	spec.RestartPolicy, spec.ServiceAccountName = corev1.RestartPolicyNever, name
	spec.DeprecatedServiceAccount = ""
	none, yes, kept := int32(0), true, int32(keptSeconds)
	failed := batchv1.Failed
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name, Labels: map[string]string{
			v1alpha1.LabelOperationUID: string(o.UID), v1alpha1.LabelCluster: o.Spec.ClusterRef.Name,
		}, Annotations: map[string]string{v1alpha1.Group + "/operation": o.Namespace + "/" + o.Name}},
		Spec: batchv1.JobSpec{
			BackoffLimit: &none, Suspend: &yes, TTLSecondsAfterFinished: &kept, PodReplacementPolicy: &failed,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{
					v1alpha1.LabelOperationUID: string(o.UID), "app.kubernetes.io/name": "slipway-operation",
				}},
				Spec: spec,
			},
		},
	}
	if at := a.deadline(); at != nil {
		seconds := int64(max(at.Sub(a.Now())+reserve, time.Minute) / time.Second)
		job.Spec.ActiveDeadlineSeconds = &seconds
	}
	return job, nil
}

// runArgs returns the arguments of the process of a Job. It has the directories and the API of the controllers.
func runArgs(operator []string, o *v1alpha1.Operation) []string {
	out := []string{"run-operation", "--namespace", o.Namespace, "--operation", o.Name}
	for i := 0; i+1 < len(operator); i++ {
		switch operator[i] {
		case "--data-dir", "--cache-dir", "--archive-dir", "--api-url", "--log-format":
			out = append(out, operator[i], operator[i+1])
		}
	}
	return out
}

// newServiceAccount returns the ServiceAccount of a Job, which is deleted with it.
func (a *attempt) newServiceAccount() client.Object {
	ofJob := []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: a.job.Name, UID: a.job.UID}}
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: a.job.Name, OwnerReferences: ofJob}}
}

// newRights returns the rights of a Job in the namespace of the Cluster. They are deleted with the operation at the
// latest.
func (a *attempt) newRights() []client.Object {
	o := a.operation
	ofOperation := []metav1.OwnerReference{{APIVersion: v1alpha1.APIVersion, Kind: "Operation", Name: o.Name, UID: o.UID}}
	return []client.Object{
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: a.job.Name, OwnerReferences: ofOperation},
			Rules:      Rules(o.Spec.ClusterRef.Name),
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: a.job.Name, OwnerReferences: ofOperation},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: a.job.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: a.Namespace, Name: a.job.Name}},
		},
	}
}

// Rules are the rights of the process of a Job in the namespace of its Cluster. A right to create or list objects cannot
// be limited to names.
func Rules(cluster string) []rbacv1.PolicyRule {
	ours := []string{v1alpha1.Group}
	return []rbacv1.PolicyRule{
		{
			APIGroups: ours, Resources: []string{"clusters"}, ResourceNames: []string{cluster},
			Verbs: []string{"get", "update", "patch", "delete"},
		},
		{
			APIGroups: ours, Resources: []string{"clusters/status"}, ResourceNames: []string{cluster}, Verbs: []string{"patch"},
		},
		{APIGroups: ours, Resources: []string{"clusters"}, Verbs: []string{"create"}}, // of an operation that creates the cluster
		{APIGroups: ours, Resources: []string{"operations"}, Verbs: []string{"get", "list", "watch", "create", "patch", "delete", "cancel"}},
		{APIGroups: ours, Resources: []string{"operations/status"}, Verbs: []string{"update", "patch"}},
		{APIGroups: ours, Resources: []string{"operationlogs"}, Verbs: []string{"get", "list", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "create", "update", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}},
		{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, ResourceNames: []string{"slipway." + cluster},
			Verbs: []string{"get", "update"},
		},
		{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
	}
}
