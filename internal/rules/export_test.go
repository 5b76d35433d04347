package rules

// Settle makes every plan of the book one that wants what it had.
func (b *Book) Settle() {
	for token, e := range b.plans {
		p := e.plan
		p.Prior = p.Want
		b.Put(token, p)
	}
}
