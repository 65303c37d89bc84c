package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BackupResult is a backup set that an operation made or tested.
type BackupResult struct {
	// The file name of the set, in the directory of the management plane. Absent if the set was
	// removed after its test.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// The time of the snapshot in the set.
	Taken metav1.Time `json:"taken"`
	// The host of the snapshot, or of the restore test.
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host,omitempty"`
	// The etcd revision of the snapshot.
	Revision int64 `json:"revision,omitempty"`
	// The result of the restore test. Absent if there was none.
	Verdict RestoreTestVerdict `json:"verdict,omitempty"`
}
