package spec

import (
	"regexp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.dev/slipway/api/v1alpha1"
	"slipway.dev/slipway/internal/spec/yamlfile"
)

var (
	// clockTime is the start of a maintenance window.
	clockTime = regexp.MustCompile(`^([01][0-9]|2[0-3]):[0-5][0-9]$`)
	weekdays  = []string{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"}
)

// These limits are the limits of the definition of Cluster.
const (
	// MaxFilesFrom is the largest number of entries of spec.filesFrom.
	MaxFilesFrom = 64
	maxWindows   = 16
	maxRetries   = 10
)

// longestWindow is the longest maintenance window; the next one begins after it.
const longestWindow = 24 * time.Hour

// longestBackoff is the longest time between two automatic attempts.
const longestBackoff = 10 * time.Minute

// A managementValidator checks the settings for the management plane.
type managementValidator struct{ *validator }

func (v managementValidator) checkManagement() {
	s := &v.c.Spec
	v.checkOneOf("spec.approval", string(s.Approval), []string{string(v1alpha1.ApprovalAutomatic), string(v1alpha1.ApprovalManual)}, nil)
	v.checkOneOf("spec.deletionPolicy", string(s.DeletionPolicy),
		[]string{string(v1alpha1.DeletionDelete), string(v1alpha1.DeletionRetain)}, nil)
	v.checkOneOf("spec.driftPolicy", string(s.DriftPolicy), []string{string(v1alpha1.DriftReport), string(v1alpha1.DriftRepair)}, nil)
	v.checkCount("spec.filesFrom", len(s.FilesFrom), MaxFilesFrom)
	v.checkCount("spec.maintenance.windows", len(s.Maintenance.Windows), maxWindows)
	for i, f := range s.FilesFrom {
		path := yamlfile.IndexPath("spec.filesFrom", i)
		if (f.SecretRef == nil) == (f.ConfigMapRef == nil) {
			v.refuse(idConflictingFields, path, "exactly one of secretRef and configMapRef must be set", "write one of them")
			continue
		}
		for field, ref := range map[string]*v1alpha1.LocalReference{"secretRef": f.SecretRef, "configMapRef": f.ConfigMapRef} {
			if ref != nil {
				v.checkObjectName(path+"."+field+".name", ref.Name)
			}
		}
	}
	for i, w := range s.Maintenance.Windows {
		v.checkWindow(yamlfile.IndexPath("spec.maintenance.windows", i), w)
	}
	v.checkRetryPolicy(s.RetryPolicy)
}

func (v managementValidator) checkRetryPolicy(r *v1alpha1.RetryPolicy) {
	if r == nil {
		return
	}
	if r.Attempts < 1 || r.Attempts > maxRetries {
		v.refuse(idInvalidValue, "spec.retryPolicy.attempts", strconv.Itoa(int(r.Attempts))+" is not a number from 1 to 10",
			"write a number from 1 to 10, or remove spec.retryPolicy")
	}
	if b := r.Backoff; b != nil && (b.Duration < time.Second || b.Duration > longestBackoff) {
		v.refuse(idInvalidDuration, "spec.retryPolicy.backoff", b.Duration.String()+" is not a duration from 1s to 10m",
			"write a duration from 1s to 10m, such as 1m")
	}
}

// checkCount refuses a list with too many entries.
func (v managementValidator) checkCount(path string, n, most int) {
	if n > most {
		v.refuse(idInvalidValue, path, strconv.Itoa(n)+" entries are too many", "write at most "+strconv.Itoa(most))
	}
}

// checkObjectName checks the name of a Secret or a ConfigMap.
func (v managementValidator) checkObjectName(path, name string) {
	if !v.requireText(path, name, "write the name of the object") && len(validation.IsDNS1123Subdomain(name)) > 0 {
		v.refuse(idInvalidName, path, strconv.Quote(name)+" is not a valid name for an object",
			"write the name of the object, such as addon-files")
	}
}

func (v managementValidator) checkWindow(path string, w v1alpha1.MaintenanceWindow) {
	for i, day := range w.Days {
		if at := yamlfile.IndexPath(path+".days", i); !v.requireText(at, day, "write a day, such as Sat") {
			v.checkOneOf(at, day, weekdays, nil)
		}
	}
	if !v.requireText(path+".start", w.Start, "write the time at which the window starts, such as 22:30") && !clockTime.MatchString(w.Start) {
		v.refuse(idInvalidValue, path+".start", strconv.Quote(w.Start)+" is not a time of day", "write hours and minutes, such as 22:30")
	}
	switch {
	case w.Duration == nil:
		v.requireText(path+".duration", "", "write how long the window is, such as 4h")
	case w.Duration.Duration < time.Minute || w.Duration.Duration > longestWindow:
		v.refuse(idInvalidDuration, path+".duration", w.Duration.Duration.String()+" is not a duration from 1m to 24h",
			"write a duration from 1m to 24h, such as 4h")
	}
	if w.TimeZone != "" {
		v.checkTimeZone(path+".timeZone", w.TimeZone)
	}
}
