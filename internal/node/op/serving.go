package op

// Serving checks that a host still serves after the earlier operations of a list:
// everything that responded before the first change must respond after the last change,
// each within its timeout. Slipway does not wait for something that did not respond
// before.
type Serving struct {
	// Name is the step with the changes: "os.kernel".
	Name  string `json:"name"`
	Waits []Wait `json:"waits"`
	// SettleSeconds is the time for changes to take effect before the first check.
	SettleSeconds int `json:"settleSeconds,omitempty"`
}

// KindServing is the kind of Serving.
const KindServing Kind = "serving"

// Kind is KindServing.
func (Serving) Kind() Kind { return KindServing }

// Target is the step.
func (o Serving) Target() string { return o.Name }
