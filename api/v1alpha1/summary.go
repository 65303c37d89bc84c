package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ClusterSummary is the state of a cluster at a glance. Each part has the time of its
// observation, which is written at most every 5 minutes if nothing else changes.
type ClusterSummary struct {
	// Whether the API answers.
	API *APISummary `json:"api,omitempty"`
	// The etcd members.
	Etcd *EtcdSummary `json:"etcd,omitempty"`
	// The certificate that expires first.
	NextCertificate *CertificateSummary `json:"nextCertificate,omitempty"`
	// The latest backup, of a host or an operation.
	LastBackup *BackupSummary `json:"lastBackup,omitempty"`
	// The latest restore test, of a host or an operation.
	LastRestoreTest *RestoreTestSummary `json:"lastRestoreTest,omitempty"`
	// The differences between the hosts and the wanted state.
	Drift *DriftSummary `json:"drift,omitempty"`
	// A newer Kubernetes version that this Slipway supports. Absent if there is none.
	NewerVersion *VersionSummary `json:"newerVersion,omitempty"`
}

// APISummary tells whether the API of a cluster answers.
type APISummary struct {
	// Whether the API responds to the management plane.
	Reachable bool `json:"reachable"`
	// The time since which this is so.
	Since metav1.Time `json:"since"`
	// The host through which the API was queried. Absent if the management plane reached it
	// directly.
	// +kubebuilder:validation:MaxLength=63
	Through string `json:"through,omitempty"`
	// The time of the latest answer.
	ObservedTime *metav1.Time `json:"observedTime,omitempty"`
}

// EtcdSummary counts the etcd members of a cluster.
type EtcdSummary struct {
	// The members that vote.
	Members int `json:"members"`
	// The members that vote and answer.
	Answering int `json:"answering"`
	// The number of members that must answer.
	Quorum int `json:"quorum"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}

// CertificateSummary is a certificate on a host.
type CertificateSummary struct {
	// The name of the certificate.
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// The host.
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host"`
	// The end of its validity.
	Expires metav1.Time `json:"expires"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}

// BackupSummary is a backup of etcd.
type BackupSummary struct {
	// The time of the snapshot.
	Time metav1.Time `json:"time"`
	// The host of the snapshot.
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}

// RestoreTestVerdict is the result of a restore test.
// +kubebuilder:validation:Enum=Passed;Failed
type RestoreTestVerdict string

// The verdicts.
const (
	RestoreTestPassed RestoreTestVerdict = "Passed"
	RestoreTestFailed RestoreTestVerdict = "Failed"
)

// RestoreTestSummary is a restore test of a snapshot.
type RestoreTestSummary struct {
	// The end of the test.
	Time metav1.Time `json:"time"`
	// The host that ran it.
	// +kubebuilder:validation:MaxLength=63
	Host string `json:"host"`
	// `Passed` or `Failed`.
	Verdict RestoreTestVerdict `json:"verdict"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}

// DriftSummary counts the differences between the hosts and the wanted state.
type DriftSummary struct {
	// The number of differences.
	Count int `json:"count"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}

// VersionSummary is a newer Kubernetes version.
type VersionSummary struct {
	// The version.
	// +kubebuilder:validation:MaxLength=32
	Version string `json:"version"`
	// The time of the observation.
	ObservedTime metav1.Time `json:"observedTime"`
}
