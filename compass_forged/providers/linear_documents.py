"""Everything that is ever asked of Linear: constant documents, to which values come as variables alone.

Each is valid against Linear's published schema (repository linear/linear, ``packages/sdk/src/schema.graphql``), and a
test holds the cost of each, by Linear's published rule (0.1 a property, 1 an object, a connection times its ``first``),
under the cap of 10,000 points. So every connection has a ``first``: one without counts as 50.

No text is put together here but for whole fragments, so that nothing an agent wrote can become part of a document.
"""

from typing import Final, NamedTuple


class Document(NamedTuple):
    """A GraphQL document of one operation.

    Attributes:
        name: the operation's.
        root: the one field that is asked for; where it stands in the answer.
        text: the document.
    """

    name: str
    root: str
    text: str


LIST_PAGE_MAX: Final = 100
"""The most issues that one page of a listing asks for."""
LABELS_MAX: Final = 250
"""The most labels that one look-up asks for, and the most of anything that Linear gives at once."""
COMMENTS_SHOWN: Final = 30
"""How many of an issue's newest comments are read with it."""
COMMENTS_COUNTED: Final = 250
"""How far an issue's comments are counted; Linear tells no total."""
DEAREST_POINTS: Final = 6400
"""More than any of these documents costs: what a request in flight is taken to cost."""

_ISSUE: Final = """
fragment IssueFields on Issue {
  id
  identifier
  previousIdentifiers
  url
  title
  description
  createdAt
  updatedAt
  archivedAt
  trashed
  state { type }
  team { id key }
  creator { id name displayName app }
  botActor { name userDisplayName }
  externalUserCreator { name displayName }
  labels(first: 50) { nodes { name } }
}
"""

_WHOLE_ISSUE: Final = """
fragment WholeIssue on Issue {
  ...IssueFields
  comments(first: 30) {
    nodes {
      id
      body
      url
      createdAt
      user { id name displayName app }
      botActor { name userDisplayName }
      externalUser { name displayName }
    }
  }
  counted: comments(first: 250) {
    nodes { id }
    pageInfo { hasNextPage }
  }
}
"""

VIEWER: Final = Document("Viewer", "viewer", "query Viewer { viewer { id name displayName app } }")

TEAM_BY_KEY: Final = Document(
    "TeamByKey",
    "teams",
    """query TeamByKey($key: String!) {
  teams(filter: {key: {eq: $key}}, first: 1) { nodes { id key retiredAt } }
}
""",
)

TEAM_BY_ID: Final = Document(
    "TeamById",
    "teams",
    """query TeamById($id: ID!) {
  teams(filter: {id: {eq: $id}}, first: 1) { nodes { id key retiredAt } }
}
""",
)

LABELS: Final = Document(
    "Labels",
    "issueLabels",
    """query Labels($filter: IssueLabelFilter!, $first: Int!) {
  issueLabels(filter: $filter, first: $first) {
    nodes { id name isGroup parent { id name } team { id } }
  }
}
""",
)

ISSUE_BY_NUMBER: Final = Document(
    "IssueByNumber",
    "issues",
    """query IssueByNumber($team: ID!, $number: Float!) {
  issues(filter: {team: {id: {eq: $team}}, number: {eq: $number}}, first: 1, includeArchived: true) {
    nodes { ...WholeIssue }
  }
}
"""
    + _WHOLE_ISSUE
    + _ISSUE,
)

ISSUE_BY_IDENTIFIER: Final = Document(
    "IssueByIdentifier",
    "issue",
    """query IssueByIdentifier($identifier: String!) {
  issue(id: $identifier) { ...WholeIssue }
}
"""
    + _WHOLE_ISSUE
    + _ISSUE,
)

ISSUE_BY_ID: Final = Document(
    "IssueById",
    "issues",
    """query IssueById($id: ID!) {
  issues(filter: {id: {eq: $id}}, first: 1, includeArchived: true) {
    nodes { ...IssueFields }
  }
}
"""
    + _ISSUE,
)

ISSUE_PLACE_BY_NUMBER: Final = Document(
    "IssuePlaceByNumber",
    "issues",
    """query IssuePlaceByNumber($team: ID!, $number: Float!) {
  issues(filter: {team: {id: {eq: $team}}, number: {eq: $number}}, first: 1, includeArchived: true) {
    nodes { id identifier previousIdentifiers trashed team { id key } }
  }
}
""",
)

ISSUE_PLACE_BY_IDENTIFIER: Final = Document(
    "IssuePlaceByIdentifier",
    "issue",
    """query IssuePlaceByIdentifier($identifier: String!) {
  issue(id: $identifier) { id identifier previousIdentifiers trashed team { id key } }
}
""",
)

ISSUES: Final = Document(
    "Issues",
    "issues",
    """query Issues($filter: IssueFilter!, $first: Int!, $after: String, $archived: Boolean!) {
  issues(filter: $filter, first: $first, after: $after, includeArchived: $archived, orderBy: createdAt) {
    nodes { ...IssueFields }
    pageInfo { hasNextPage endCursor }
  }
}
"""
    + _ISSUE,
)

COMMENT_BY_ID: Final = Document(
    "CommentById",
    "comments",
    """query CommentById($id: ID!) {
  comments(filter: {id: {eq: $id}}, first: 1) { nodes { id url issue { id } } }
}
""",
)

ISSUE_CREATE: Final = Document(
    "IssueCreate",
    "issueCreate",
    """mutation IssueCreate($input: IssueCreateInput!) {
  issueCreate(input: $input) {
    success
    issue { ...IssueFields }
  }
}
"""
    + _ISSUE,
)

COMMENT_CREATE: Final = Document(
    "CommentCreate",
    "commentCreate",
    """mutation CommentCreate($input: CommentCreateInput!) {
  commentCreate(input: $input) {
    success
    comment { id url issue { id } }
  }
}
""",
)

DOCUMENTS: Final = (
    VIEWER,
    TEAM_BY_KEY,
    TEAM_BY_ID,
    LABELS,
    ISSUE_BY_NUMBER,
    ISSUE_BY_IDENTIFIER,
    ISSUE_BY_ID,
    ISSUE_PLACE_BY_NUMBER,
    ISSUE_PLACE_BY_IDENTIFIER,
    ISSUES,
    COMMENT_BY_ID,
    ISSUE_CREATE,
    COMMENT_CREATE,
)
"""All of them; a test looks that none is left out."""
