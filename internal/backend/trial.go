package backend

import (
	"context"
	"fmt"
	"time"
)

// trialUndo is how long putting a host back may take.
const trialUndo = 15 * time.Minute

// Trial is a self-test that changes a host: the notes of it, and what puts each change back.
type Trial struct {
	Answers []Answer
	undo    []undoing
}

type undoing struct {
	step string
	do   func(context.Context) error
}

// Step does one thing and notes how it went.
func (t *Trial) Step(name string, do func() (found string, err error)) bool {
	found, err := do()
	t.Answers = append(t.Answers, Answer{Step: name, Found: found, Err: err})
	return err == nil
}

// Change is a step with what undoes it, also when it failed: part of it may be done.
func (t *Trial) Change(ctx context.Context, name string, do func(context.Context) error, step string,
	undo func(context.Context) error,
) bool {
	t.Later(step, undo)
	return t.Step(name, func() (string, error) {
		began := time.Now()
		err := do(ctx)
		return "in " + time.Since(began).Round(10*time.Millisecond).String(), err
	})
}

// Later adds a step for Back.
func (t *Trial) Later(step string, undo func(context.Context) error) {
	t.undo = append(t.undo, undoing{step, undo})
}

// Changed is how many changes are to be put back.
func (t *Trial) Changed() int { return len(t.undo) }

// Back undoes changes, the last first, until so many are left. It does so too when ctx has
// ended.
func (t *Trial) Back(ctx context.Context, left int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), trialUndo)
	defer cancel()
	for len(t.undo) > left {
		u := t.undo[len(t.undo)-1]
		t.undo = t.undo[:len(t.undo)-1]
		t.Step(u.step, func() (string, error) {
			err := u.do(ctx)
			if err == nil {
				return "done", nil
			}
			if u.do(ctx) != nil { // what failed once may pass
				return "", err
			}
			return fmt.Sprintf("done, after it had failed: %v", err), nil
		})
	}
}

// Answer answers a question of the list of assumptions.
func (t *Trial) Answer(assumption, found string, holds bool) {
	t.Answers = append(t.Answers, Answer{Assumption: assumption, Found: found, Holds: &holds})
}

// Last is what the last step found, or why it failed.
func (t *Trial) Last() string {
	a := t.Answers[len(t.Answers)-1]
	if a.Err != nil {
		return a.Err.Error()
	}
	return a.Step + ": " + a.Found
}
