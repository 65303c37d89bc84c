package controlplane_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/internal/server/controlplane"
)

// TestConditions_AreSavedForEachServer saves a condition next to the one of a server on another
// machine, and reads it as the next start does.
func TestConditions_AreSavedForEachServer(t *testing.T) {
	client := kubernetes.NewForConfigOrDie(server.Admin)
	maps := client.CoreV1().ConfigMaps(controlplane.SystemNamespace)
	object, err := maps.Get(t.Context(), controlplane.StatusName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	object.Data["another-machine"] = "[]"
	if _, err := maps.Update(t.Context(), object, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	failing := metav1.Condition{Type: controlplane.BackupsFailing, Status: metav1.ConditionTrue, Reason: "Failed", Message: "no room"}
	server.SetCondition(t.Context(), failing)
	object, err = maps.Get(t.Context(), controlplane.StatusName, metav1.GetOptions{})
	if err != nil || object.Data["another-machine"] != "[]" {
		t.Errorf("the conditions of the other server are %q, %v", object.Data["another-machine"], err)
	}
	list, err := controlplane.LoadConditions(t.Context(), server.Server)
	if got := meta.FindStatusCondition(list, controlplane.BackupsFailing); err != nil || got == nil || got.Message != failing.Message {
		t.Errorf("after a restart, the condition would be %+v, %v", got, err)
	}
	if len(list) != 1 {
		t.Errorf("a start takes over %d conditions; the others are set again", len(list))
	}
}
