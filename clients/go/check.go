package tidewire

import (
	"fmt"
	"time"
)

// errInvalid stands for errors of options, and for those of the server about fields.
const errInvalid = errorCode("invalid")

// wrongOption returns an error that says what to give for an option.
func wrongOption(name, format string, args ...any) error {
	return &Error{Code: "invalid", Message: name + ": " + fmt.Sprintf(format, args...), Field: name}
}

// firstOf returns the first error.
func firstOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}

func notNegative(name string, d time.Duration) error {
	if d < 0 {
		return wrongOption(name, "%v is negative: give a time, or nothing", d)
	}
	return nil
}

func position(name string, after int64) error {
	if after < 0 {
		return wrongOption(name, "%d is no position: give 0 for the beginning, or the position of a message", after)
	}
	return nil
}

func atLeast(name string, n, least int) error {
	if n < least {
		return wrongOption(name, "%d is too few: give %d or more", n, least)
	}
	return nil
}

func (o *Options) check() error {
	if o.Encoding != CBOR && o.Encoding != JSON {
		return wrongOption("Encoding", "%d is unknown: give CBOR or JSON", o.Encoding)
	}
	if o.Token != nil && o.APIKey != "" {
		return wrongOption("APIKey", "give it, or Token")
	}
	return firstOf(notNegative("Timeout", o.Timeout), atLeast("MaxPending", o.MaxPending, 0), atLeast("MaxPendingBytes", o.MaxPendingBytes, 0), atLeast("MaxFrame", o.MaxFrame, 0))
}

// Check returns an error if an option has a value that it cannot have, for other implementations of Log. So do the other methods of this name.
func (o *PublishOptions) Check() error { return notNegative("Timeout", o.Timeout) }

func (o *EnqueueOptions) Check() error {
	if (o.UniqueKey == "") != (o.UniqueFor <= 0) {
		return wrongOption("Unique", "the key is %q, and the period %v: give a key, and a period of a second or more", o.UniqueKey, o.UniqueFor)
	}
	return firstOf(o.PublishOptions.Check(), notNegative("Delay", o.Delay), atLeast("Priority", o.Priority, 0))
}

func (o *AppendOptions) Check() error {
	if o.Condition != nil {
		if err := position("If", o.Condition.After); err != nil {
			return err
		}
	}
	return notNegative("Timeout", o.Timeout)
}

func (o *ReadOptions) Check() error { return position("After", o.After) }

func (o *SubscribeOptions) Check() error {
	starts := 0
	for _, given := range []bool{o.After != nil, !o.At.IsZero(), o.FromStart} {
		if given {
			starts++
		}
	}
	switch {
	case starts > 1:
		return wrongOption("After", "After, At and FromStart are different places to begin: give one of them")
	case o.Share && o.Group == "":
		return wrongOption("Share", "a subscription that shares partitions needs a group: give Group, too")
	case o.Share && starts > 0:
		return wrongOption("Share", "a subscription that shares partitions begins after the offsets of its group: give no After, At or FromStart")
	case o.Group != "" && starts > 0 && o.After == nil:
		return wrongOption("Group", "a group begins after its offset: give Group, or At or FromStart")
	case o.After != nil && *o.After < 0:
		return position("After", *o.After)
	}
	return atLeast("Credits", o.Credits, 1)
}

func (o *WorkOptions) Check() error {
	if o.Lease < shortestLease {
		return wrongOption("Lease", "%v is too short: give %v or more", o.Lease, shortestLease)
	}
	return firstOf(atLeast("Concurrency", o.Concurrency, 1), notNegative("Drain", o.Drain))
}

func (o *JoinOptions) Check() error {
	switch {
	case o.After != nil && o.History != 0:
		return wrongOption("History", "After and History are different places to begin: give one of them")
	case o.After != nil:
		return position("After", *o.After)
	case o.History > mostHistory:
		return wrongOption("History", "%d is too many: give %d or fewer, or After", o.History, mostHistory)
	}
	return atLeast("History", o.History, 0)
}
