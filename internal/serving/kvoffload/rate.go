package kvoffload

import "time"

// A rate is the average rate of several measurements, such as blocks per second. Recent measurements have
// more weight.
type rate struct {
	amount, seconds float64
	last            time.Time
}

const (
	rateDecays  = 0.8
	rateForgets = time.Minute // a tier that was slow is tried again
)

func (r *rate) add(amount float64, took time.Duration) {
	r.amount, r.seconds = rateDecays*r.amount+amount, rateDecays*r.seconds+took.Seconds()
	r.last = time.Now()
}

// duration returns the time that an amount takes, or 0 if the rate is unknown.
func (r *rate) duration(amount float64) time.Duration {
	if r.seconds == 0 || time.Since(r.last) > rateForgets {
		return 0
	}
	return time.Duration(amount * r.seconds / r.amount * float64(time.Second))
}
