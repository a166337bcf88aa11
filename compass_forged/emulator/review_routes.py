"""Routes of reviews and of their comments. A review is all or nothing, as on GitHub."""

from compass_forged.emulator import inputs, pull_inputs
from compass_forged.emulator.paging import paginate
from compass_forged.emulator.pull_changes import (
    NewComment,
    add_review,
    delete_review,
    facts,
    find_line,
    submit_pending,
)
from compass_forged.emulator.reach import pull_request, repository, writable_repository
from compass_forged.emulator.records import Account, ChangedFile, Issue, Review
from compass_forged.emulator.refusals import DOCS, not_found, review_refused
from compass_forged.emulator.render_pulls import PullRenderer
from compass_forged.emulator.routing import Call, Reply, Routes

_PULL = "/repos/{owner}/{repo}/pulls/{pull_number}"
_REVIEWS = f"{_PULL}/reviews"
_REVIEW = f"{_REVIEWS}/{{review_id}}"
_ONE_PENDING = "User can only have one pending review per pull request"
_OWN = {
    "APPROVE": "Can not approve your own pull request",
    "REQUEST_CHANGES": "Can not request changes on your own pull request",
}

routes = Routes()


@routes.add("GET", _REVIEWS, f"{DOCS}/pulls/reviews#list-reviews-for-a-pull-request")
def list_reviews(call: Call) -> Reply:
    """A pull request's reviews, oldest first; a pending one is shown to its author alone."""
    repo = repository(call)
    pull = pull_request(call, repo)
    visible = [each for each in facts(pull).reviews if _visible(each, call.caller)]
    shown, headers = paginate(call, repo, visible)
    render = PullRenderer(call.render)
    return Reply([render.review(pull, each) for each in shown], headers=headers)


def _visible(review: Review, caller: Account | None) -> bool:
    return review.state != "PENDING" or (caller is not None and caller.id == review.author_id)


@routes.add("POST", _REVIEWS, f"{DOCS}/pulls/reviews#create-a-review-for-a-pull-request")
def create_review(call: Call) -> Reply:
    """Review a pull request; without an event the review stays pending. It answers 200."""
    repo, author = writable_repository(call)
    pull = pull_request(call, repo)
    held = facts(pull)
    call.limits.check_creation(author.id, call.state.now())
    body = call.json()
    event = pull_inputs.event_of(body)
    text = pull_inputs.summary_of(body, event)
    comments = pull_inputs.comments_of(body)
    commit = pull_inputs.text_of(body, "commit_id") if "commit_id" in body else held.head_sha
    _check_verdict(pull, author, event)
    if commit != held.head_sha and commit not in held.diffs:
        raise review_refused("commit_id is not part of the pull request")
    files = held.diffs.get(commit, [])
    if complaints := [complaint for each in comments for complaint in _complaints(files, each)]:
        raise review_refused(*complaints)
    if any(each.state == "PENDING" and each.author_id == author.id for each in held.reviews):
        raise review_refused(_ONE_PENDING)
    made = add_review(call.state, pull, author, event, text, comments, commit=commit)
    call.committed(author, "review")
    return Reply(PullRenderer(call.render).review(pull, made))


def _check_verdict(pull: Issue, author: Account, event: str | None) -> None:
    if event in _OWN and pull.author_id == author.id:
        raise review_refused(_OWN[event])


def _complaints(files: list[ChangedFile], comment: NewComment) -> list[str]:
    """What is wrong with a comment's place, without a word of which comment it is."""
    if all(file.name != comment.path for file in files):
        return ["Path could not be resolved"]
    end = find_line(files, comment.path, comment.side, comment.line)
    if end is None:
        return ["Line could not be resolved"]
    if comment.start:
        start = find_line(files, comment.path, *comment.start)
        if start is None:
            return ["Start line could not be resolved"]
        if start.hunk != end.hunk:
            return ["Pull request review thread start line must be part of the same hunk as the line."]
        if start.position > end.position:
            return ["Pull request review thread start line must precede the end line."]
    return []


def _review(call: Call, pull: Issue) -> Review:
    number = call.number("review_id")
    found = next((each for each in facts(pull).reviews if each.id == number), None)
    if found is None or not _visible(found, call.caller):
        raise not_found()
    return found


@routes.add("GET", _REVIEW, f"{DOCS}/pulls/reviews#get-a-review-for-a-pull-request")
def get_review(call: Call) -> Reply:
    """One review."""
    pull = pull_request(call, repository(call))
    return Reply(PullRenderer(call.render).review(pull, _review(call, pull)))


@routes.add("DELETE", _REVIEW, f"{DOCS}/pulls/reviews#delete-a-pending-review-for-a-pull-request")
def delete_pending(call: Call) -> Reply:
    """Delete a pending review; one that was submitted stays."""
    repo, _ = writable_repository(call)
    pull = pull_request(call, repo)
    found = _review(call, pull)
    if found.state != "PENDING":
        raise review_refused("Can not delete a non-pending pull request review")
    delete_review(pull, found)
    call.state.commits["review_deletion"] += 1
    return Reply(PullRenderer(call.render).review(pull, found))


@routes.add("POST", f"{_REVIEW}/events", f"{DOCS}/pulls/reviews#submit-a-review-for-a-pull-request")
def submit_review(call: Call) -> Reply:
    """Submit a pending review."""
    repo, author = writable_repository(call)
    pull = pull_request(call, repo)
    found = _review(call, pull)
    body = call.json()
    event = pull_inputs.event_of(body)
    if event is None:
        raise review_refused("Event can't be blank")
    text = pull_inputs.summary_of({"body": body.get("body", found.body)}, event)
    _check_verdict(pull, author, event)
    if found.state != "PENDING":
        raise review_refused("Can not submit a non-pending pull request review")
    submit_pending(call.state, found, event, text)
    call.committed(author, "review")
    return Reply(PullRenderer(call.render).review(pull, found))


@routes.add("GET", f"{_PULL}/comments", f"{DOCS}/pulls/comments#list-review-comments-on-a-pull-request")
def list_review_comments(call: Call) -> Reply:
    """The comments on a pull request's lines; those of a pending review are not among them."""
    repo = repository(call)
    pull = pull_request(call, repo)
    held = facts(pull)
    inputs.choice_of(call.query, "sort", ("created", "updated", "created_at"), "PullRequestReviewComment")
    direction = inputs.choice_of(call.query, "direction", ("asc", "desc"), "PullRequestReviewComment") or "asc"
    hidden = {each.id for each in held.reviews if each.state == "PENDING"}
    visible = [each for each in held.review_comments if each.review_id not in hidden]
    if "sort" in call.query and direction == "desc":  # without an order to turn round it turns nothing
        visible.reverse()
    shown, headers = paginate(call, repo, visible)
    render = PullRenderer(call.render)
    return Reply([render.review_comment(pull, each) for each in shown], headers=headers)
